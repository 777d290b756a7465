// Command reload measures what a hot reload costs: messages flow at half of what
// the machine can do while modules are swapped every second, and what comes out
// is compared with what went in.
//
// # Caveats
//
// The pipelines run in this process, as `mqrun run` runs them, so that goroutines,
// memory and open files can be counted. It reads /proc and takes some minutes on a
// machine that must do nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"
)

type settings struct {
	rate   float64       // messages a second; 0 is half of what is measured
	probe  int           // messages of that measurement
	steady time.Duration // before the swaps
	swaps  int           // one a second, for each way to commit
	flat   int           // swaps as fast as they go, for the resources
	many   int           // pipelines of the large file
	guest  string        // a large module, for the cold compile
}

func main() { os.Exit(doMain()) }

func doMain() int {
	var s settings
	short := flag.Bool("short", false, "a few seconds only, to see that it works; its figures say nothing")
	flag.Float64Var(&s.rate, "rate", 0, "messages a second; 0 is half of the capacity measured")
	flag.StringVar(&s.guest, "guest", "plugins/bin/parse.wasm", "a large module")
	flag.Parse()
	s.probe, s.steady, s.swaps, s.flat, s.many = 50_000, 30*time.Second, 60, 1000, 200
	if *short {
		s.probe, s.steady, s.swaps, s.flat, s.many = 2000, 2*time.Second, 3, 30, 20
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "reload:", err)
		return 1
	}
	return 0
}

// totals are what all parts together found.
type totals struct {
	swaps, lost, duplicates, redelivered int
	ratio, coldRatio                     float64
}

func run(ctx context.Context, s settings) error {
	var t totals
	for _, commit := range []string{"each", "batch"} {
		if err := inFolder(func(dir string) error { return underLoad(ctx, s, dir, commit, &t) }); err != nil {
			return fmt.Errorf("commit: %s: %w", commit, err)
		}
	}
	var touched int
	var noop time.Duration
	err := inFolder(func(dir string) (err error) {
		touched, noop, err = manyPipelines(ctx, dir, s.many)
		return err
	})
	if err != nil {
		return fmt.Errorf("%d pipelines: %w", s.many, err)
	}
	var before, after resources
	err = inFolder(func(dir string) (err error) {
		before, after, err = flat(ctx, dir, s.flat)
		return err
	})
	if err != nil {
		return fmt.Errorf("%d swaps: %w", s.flat, err)
	}
	fmt.Printf("RESULT swaps=%d pipelines_touched=%d noop_ms=%.1f cold_p99_ratio=%.2f lost=%d duplicates=%d redelivered=%d p99_ratio=%.2f flat_swaps=%d goroutines=%+d fds=%+d memory_ratio=%.2f\n",
		t.swaps, touched, float64(noop.Microseconds())/1000, t.coldRatio, t.lost, t.duplicates, t.redelivered, t.ratio,
		s.flat, after.goroutines-before.goroutines, after.files-before.files, after.memory/before.memory)
	return nil
}

// underLoad swaps a module every second while messages flow.
func underLoad(ctx context.Context, s settings, dir, commit string, t *totals) (err error) {
	h, err := openHouse(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = h.close(err) }()
	if err := h.modules(s.guest); err != nil {
		return err
	}
	h.yaml = loadYAML(commit)
	for _, version := range []string{"b", "a"} { // both are compiled then
		if _, err := h.swap(ctx, "echo.wasm", version); err != nil {
			return err
		}
	}
	l, err := newLoad(ctx, h)
	if err != nil {
		return err
	}
	defer l.stop()
	rate := s.rate
	if rate == 0 {
		capacity, err := l.capacity(ctx, s.probe)
		if err != nil {
			return err
		}
		rate = capacity / 2
		fmt.Printf("commit: %s: %.0f messages a second at most, %.0f from now on\n", commit, capacity, rate)
	}
	l.begin(ctx, rate)
	if err := pause(ctx, s.steady); err != nil {
		return err
	}
	steady := l.until(time.Now())

	var windows []window
	for i := range s.swaps {
		next := time.After(time.Second)
		w, err := h.swap(ctx, "echo.wasm", []string{"b", "a"}[i%2])
		if err != nil {
			return err
		}
		windows = append(windows, w)
		t.swaps++
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// A large module that was never seen before, of the pipeline next door.
	cold, err := h.swap(ctx, "cold.wasm", fmt.Sprint(time.Now().UnixNano()))
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	if err := l.end(ctx); err != nil {
		return err
	}
	lost, duplicates, redelivered, err := l.compare(ctx, commit)
	if err != nil {
		return err
	}
	base := p99(l.latencies(steady))
	swapped, frozen := p99(l.latencies(windows...)), p99(l.latencies(cold))
	fmt.Printf("commit: %s: p99 %v steady, %v in %d swaps (%v each), %v while a module of %d KiB compiled (%v); lost %d, duplicates %d, redelivered %d of %d\n",
		commit, base, swapped, len(windows), median(windows), frozen, h.coldSize>>10, cold.end.Sub(cold.begin).Round(time.Millisecond), lost, duplicates, redelivered, len(l.sent))
	t.lost, t.duplicates, t.redelivered = t.lost+lost, t.duplicates+duplicates, t.redelivered+redelivered
	t.ratio = max(t.ratio, float64(swapped)/float64(base))
	t.coldRatio = max(t.coldRatio, float64(frozen)/float64(base))
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func median(ws []window) time.Duration {
	var all []time.Duration
	for _, w := range ws {
		all = append(all, w.end.Sub(w.begin))
	}
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}
