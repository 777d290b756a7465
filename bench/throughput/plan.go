package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// bench runs all parts and keeps what they gave.
type bench struct {
	ctx            context.Context
	rounds         int
	length, warmUp time.Duration
	only           string
	profile        string
	result         []string
	tables         []table
	latencies      table
}

// table is one part: engines by round.
type table struct {
	title string
	rows  []row
}

type row struct {
	name    string
	samples []sample
}

func (r row) of(f func(sample) float64) spread {
	var v []float64
	for _, s := range r.samples {
		v = append(v, f(s))
	}
	return spreadOf(v)
}

func rate(s sample) float64 { return s.rate }
func cpu(s sample) float64  { return s.cpu }

func (t table) row(name string) (row, bool) {
	for _, r := range t.rows {
		if r.name == name {
			return r, true
		}
	}
	return row{}, false
}

// ratio of the middle values of two rows.
func (t table) ratio(a, b string, f func(sample) float64) float64 {
	ra, okA := t.row(a)
	rb, okB := t.row(b)
	if !okA || !okB {
		return 0
	}
	return ra.of(f).mid / rb.of(f).mid
}

const control = "native, 64 workers (control)"

func (b *bench) run() error {
	g, err := buildGuests(b.ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(g.dir)
	again := native(64)
	again.name = control
	if b.profile != "" {
		for _, e := range []engine{native(64), tuned(), g.engine("c-echo", "batch", 1)} {
			if e.name == b.only {
				return b.profiled(e)
			}
		}
		return b.profiled(g.engine("c-echo", "each", 1))
	}
	all := append(rivals(),
		native(1), native(64), again, tuned(),
		g.engine("c-echo", "each", 1), g.engine("go-echo", "each", 1), g.engine("go-json", "each", 1),
		g.engine("c-echo", "batch", 1), g.engine("go-echo", "batch", 1), g.engine("go-json", "batch", 1),
	)
	few := []engine{native(64), tuned(), g.engine("c-echo", "each", 1), g.engine("c-echo", "batch", 1)}
	steps := []engine{g.engine("c-echo", "each", 1), g.engine("c-echo", "each", 3)}
	const never, always = 2 * time.Minute, time.Duration(0)
	for _, p := range []struct {
		title   string
		engines []engine
		sync    time.Duration
		size    int
		remote  bool
	}{
		{"1 KiB, sync 2m", all, never, 1 << 10, false},
		{"1 KiB, sync always", all, always, 1 << 10, false},
		{"3 steps, 1 KiB, sync 2m", steps, never, 1 << 10, false},
		{"128 B, sync 2m", few, never, 128, false},
		{"16 KiB, sync 2m", few, never, 16 << 10, false},
		{"256 KiB, sync 2m", few, never, 256 << 10, false},
		{"external server over TCP, 1 KiB, sync 2m", few, never, 1 << 10, true},
	} {
		if err := b.part(p.title, p.engines, settings{sync: p.sync, size: p.size, length: b.length, warmUp: b.warmUp, remote: p.remote}); err != nil {
			return err
		}
	}
	b.compare()
	return b.finer(g)
}

// part runs the engines in turns, round by round.
func (b *bench) part(title string, engines []engine, s settings) error {
	if !strings.Contains(title, b.only) {
		return nil
	}
	t := table{title: title}
	for _, e := range engines {
		t.rows = append(t.rows, row{name: e.name})
	}
	fmt.Printf("%s\n", title)
	for range b.rounds {
		for i, e := range engines {
			s.stored = b.enough(t.rows[i], s)
			got, err := run(b.ctx, e, s)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", title, e.name, err)
			}
			t.rows[i].samples = append(t.rows[i].samples, got)
			fmt.Printf("  %-34s %9.0f msg/s %7.1f us %6.1f allocs %6.0f MiB\n", e.name, got.rate, got.cpu, got.allocs, got.peak)
		}
	}
	b.tables = append(b.tables, t)
	return nil
}

// enough is how many messages a run needs, by what the engine did before.
func (b *bench) enough(r row, s settings) int {
	guess := 60_000.0
	if s.sync == 0 && !strings.Contains(r.name, "batch") {
		guess = 8_000
	}
	if s.size > 4<<10 {
		guess = 200e6 / float64(s.size)
	}
	if len(r.samples) > 0 {
		guess = 1.2 * r.of(rate).max
	}
	return int(guess * (s.warmUp + s.length).Seconds())
}

// compare turns the tables into the figures of the RESULT line.
func (b *bench) compare() {
	const (
		n64, tun   = "native, 64 workers", "native, tuned"
		eachC      = "mqrun, each, c-echo"
		batchC     = "mqrun, batch, c-echo"
		batchGo    = "mqrun, batch, go-echo"
		threeSteps = "mqrun, each, c-echo, 3 steps"
	)
	for _, t := range b.tables {
		switch t.title {
		case "1 KiB, sync 2m":
			b.figure("each_vs_native64", t.ratio(eachC, n64, rate))
			b.figure("each_cpu_vs_native64", t.ratio(eachC, n64, cpu))
			b.figure("each_cpu_vs_tuned", t.ratio(eachC, tun, cpu))
			b.figure("batch_vs_each", t.ratio(batchC, eachC, rate))
			b.figure("noise", t.ratio(control, n64, rate))
		case "1 KiB, sync always":
			b.figure("each_sync_vs_native64", t.ratio(eachC, n64, rate))
			b.figure("batch_sync_vs_native64", t.ratio(batchC, n64, rate))
			b.figure("batch_go_sync_vs_native64", t.ratio(batchGo, n64, rate))
			b.figure("batch_sync_vs_each", t.ratio(batchC, eachC, rate))
		case "3 steps, 1 KiB, sync 2m":
			b.figure("steps3_ratio", t.ratio(eachC, threeSteps, rate))
		}
	}
}

func (b *bench) figure(key string, v float64) {
	b.result = append(b.result, fmt.Sprintf("%s=%.2f", key, v))
}

// markdown is docs/benchmarks.md.
func (b *bench) markdown() string {
	var w strings.Builder
	fmt.Fprintf(&w, `# Benchmarks

Made by `+"`make bench`"+` on %s, %s, %d cores, %s. Each figure is the middle of %d runs of %v after a
warm-up of %v, with the least and the greatest; engines take turns. CPU is that of the whole process: server, engine and sink;
where the server is external, its own is not counted.

`, cpuModel(), runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), runtime.Version(), b.rounds, b.length, b.warmUp)
	fmt.Fprintf(&w, "```\nRESULT %s\n```\n", strings.Join(b.result, " "))
	for _, t := range b.tables {
		fmt.Fprintf(&w, "\n## %s\n\n| engine | msg/s | CPU us/msg | allocations/msg | peak MiB |\n|---|---|---|---|---|\n", t.title)
		for _, r := range t.rows {
			m, c := r.of(rate), r.of(cpu)
			fmt.Fprintf(&w, "| %s | %.0f (%.0f..%.0f) | %.1f (%.1f..%.1f) | %.1f | %.0f |\n", r.name, m.mid, m.min, m.max, c.mid, c.min, c.max,
				r.of(func(s sample) float64 { return s.allocs }).mid, r.of(func(s sample) float64 { return s.peak }).mid)
		}
	}
	if len(b.latencies.rows) > 0 {
		fmt.Fprintf(&w, "\n## %s\n\n| engine | p50 ms | p99 ms | p99.9 ms |\n|---|---|---|---|\n", b.latencies.title)
	}
	for _, r := range b.latencies.rows {
		p50, p99, p999 := r.of(func(s sample) float64 { return s.p50 }), r.of(func(s sample) float64 { return s.p99 }), r.of(func(s sample) float64 { return s.p999 })
		fmt.Fprintf(&w, "| %s | %.2f (%.2f..%.2f) | %.2f (%.2f..%.2f) | %.2f (%.2f..%.2f) |\n", r.name, p50.mid, p50.min, p50.max, p99.mid, p99.min, p99.max, p999.mid, p999.min, p999.max)
	}
	return w.String()
}

func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "an unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "an unknown processor"
}
