package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// backlogPart: four pipelines get a backlog, are stopped in the middle, killed
// later, and go on.
func (s *scale) backlogPart() error {
	fmt.Printf("backlog of %d messages, 4 pipelines\n", s.backlog)
	const stream = "streams: { IN: { subjects: [in.>] } }\npipelines:\n"
	var four strings.Builder
	for i := range 4 {
		fmt.Fprintf(&four, "  p%d: { from: in.%d, steps: [echo], to: out.%d }\n", i, i, i)
	}
	out := []string{"MQRUN_P0", "MQRUN_P1", "MQRUN_P2", "MQRUN_P3"}
	p, err := s.start(stream + "  other: { from: ingest.a, steps: [echo], to: other.a }\n")
	if err != nil {
		return err
	}
	if err := s.fill(p, s.backlog, 128, "in.0", "in.1", "in.2", "in.3"); err != nil {
		return err
	}
	if err := s.stop(p); err != nil {
		return err
	}
	peak := 0.0
	watch := func(u usage) { peak = max(peak, u.mib) }
	for i, goal := range []int{s.backlog / 3, 2 * s.backlog / 3, s.backlog} {
		if p, err = s.start(stream + four.String()); err != nil {
			return err
		}
		s.figure([]string{"start_full_s", "start_clean_s", "start_killed_s"}[i], "%.2f", p.began.Seconds())
		began := time.Now()
		before, err := s.outputs(p, out...)
		if err != nil {
			return err
		}
		if err := s.await(p, goal, watch, out...); err != nil {
			return err
		}
		fmt.Printf("  %.0f messages a second\n", float64(goal-before)/time.Since(began).Seconds())
		end := s.stop
		if i == 1 {
			end = func(p *program) error { return p.kill() }
		}
		if err := end(p); err != nil {
			return err
		}
	}
	s.figure("backlog", "%d", s.backlog)
	s.figure("backlog_peak_mib", "%.0f", peak)
	return nil
}

// idlePart: a thousand pipelines that have nothing to do.
func (s *scale) idlePart() error {
	const n = 1000
	fmt.Printf("%d idle pipelines\n", n)
	var w strings.Builder
	fmt.Fprintf(&w, "streams: { IN: { subjects: [in.>] } }\npipelines:\n")
	for i := range n {
		fmt.Fprintf(&w, "  p%d: { from: in.%d, steps: [echo], to: out.%d }\n", i, i, i)
	}
	p, err := s.start(w.String())
	if err != nil {
		return err
	}
	s.figure("idle_start_s", "%.1f", p.began.Seconds())
	const settle, measure = 20 * time.Second, 30 * time.Second
	time.Sleep(settle) // pulls back off in this time
	from, err := p.usage()
	if err != nil {
		return err
	}
	time.Sleep(measure)
	to, err := p.usage()
	if err != nil {
		return err
	}
	s.figure("idle_cpu_percent", "%.2f", 100*(to.cpu-from.cpu).Seconds()/measure.Seconds())
	s.figure("idle_mib", "%.0f", to.mib)
	return s.stop(p)
}

// chainPart: a hundred steps.
func (s *scale) chainPart() error {
	const steps, n = 100, 10_000
	fmt.Printf("a chain of %d steps\n", steps)
	p, err := s.start(fmt.Sprintf("streams: { IN: { subjects: [in.>] } }\npipelines: { chain: { from: in.a, steps: [%s], to: out.a } }\n", strings.TrimSuffix(strings.Repeat("echo,", steps), ",")))
	if err != nil {
		return err
	}
	began := time.Now()
	for range n {
		if _, err := p.js.PublishAsync("in.a", []byte("x")); err != nil {
			return err
		}
	}
	if err := s.await(p, n, func(usage) {}, "MQRUN_CHAIN"); err != nil {
		return err
	}
	s.figure("chain_outputs", "%d", n)
	s.figure("chain_msg_s", "%.0f", n/time.Since(began).Seconds())
	return s.stop(p)
}

// largePart: payloads of 7 MiB.
func (s *scale) largePart() error {
	const n = 100
	fmt.Println("payloads of 7 MiB")
	p, err := s.start("streams: { IN: { subjects: [in.>] } }\npipelines: { large: { from: in.a, steps: [echo], to: out.a } }\n")
	if err != nil {
		return err
	}
	data := []byte(strings.Repeat("x", 7<<20))
	peak := 0.0
	for range n {
		if _, err := p.js.Publish(s.ctx, "in.a", data); err != nil {
			return err
		}
	}
	if err := s.await(p, n, func(u usage) { peak = max(peak, u.mib) }, "MQRUN_LARGE"); err != nil {
		return err
	}
	s.figure("large_outputs", "%d", n)
	s.figure("large_peak_mib", "%.0f", peak)
	return s.stop(p)
}

// soakPart: as many messages as in a day, and nothing grows. What was read is
// removed, so that the disk holds them.
func (s *scale) soakPart() error {
	fmt.Printf("soak of %d messages\n", s.soak)
	p, err := s.start(`streams:
  IN: { subjects: [in.>], max_bytes: 1GiB, duplicate_window: 1s, keep: 2s }
  OUT: { subjects: [out.>], max_bytes: 1GiB, max_age: 10s, duplicate_window: 1s }
pipelines: { soak: { from: in.a, steps: [echo], to: out.a } }
`)
	if err != nil {
		return err
	}
	filled := make(chan error, 1)
	go func() { filled <- s.fill(p, s.soak, 128, "in.a") }()
	var got []usage
	var failed error
	if err := s.await(p, s.soak, func(u usage) {
		if u.goroutines, failed = goroutines("http://" + p.web); failed == nil {
			got = append(got, u)
		}
	}, "OUT"); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	if err := <-filled; err != nil {
		return err
	}
	// The first quarter may grow; the last is held against the second.
	most := func(quarter int) (u usage) {
		q := len(got) / 4
		for _, v := range got[quarter*q : (quarter+1)*q] {
			u.mib, u.goroutines, u.files = max(u.mib, v.mib), max(u.goroutines, v.goroutines), max(u.files, v.files)
		}
		return u
	}
	before, after := most(1), most(3)
	s.figure("soak", "%d", s.soak)
	s.figure("soak_peak_mib", "%.0f", after.mib)
	s.figure("soak_mib_growth", "%.2f", after.mib/before.mib)
	s.figure("soak_files_growth", "%.2f", float64(after.files)/float64(before.files))
	s.figure("soak_goroutines_growth", "%.2f", float64(after.goroutines)/float64(before.goroutines))
	return s.stop(p)
}

// free is an address that nobody listens at.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// goroutines are read from the program's own metrics.
func goroutines(url string) (int, error) {
	r, err := http.Get(url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			var n int
			_, err := fmt.Sscan(v, &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("%s has no go_goroutines", url)
}
