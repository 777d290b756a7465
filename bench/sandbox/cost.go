package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// measured is what the test TestMeasureSandbox of the package host writes.
type measured struct {
	Jobs       []job
	TwoWorkers float64
	OverrunMS  float64
	OverrunOf  string
	OverrunMax float64
	GapMS      float64
	GapMax     float64
	GapOf      string
	ControlMS  float64
	RewriteMBs float64
	InstGoMS   float64
	InstJSONMS float64
	InstCUS    float64
	IdleC      float64
	IdleGo     float64
	Interval   int
	GoBytes    int
	Go         string
}

type job struct {
	Name                  string
	None, Switch, Metered float64
	Ratio                 float64
}

func (m *measured) job(name string) job {
	for _, j := range m.Jobs {
		if j.Name == name {
			return j
		}
	}
	return job{}
}

func cost(ctx context.Context, page string) error {
	m, err := measureHost(ctx)
	if err != nil {
		return err
	}
	ext, err := extism(ctx)
	if err != nil {
		return fmt.Errorf("extism: %w", err)
	}
	var b bytes.Buffer
	m.write(&b, ext)
	fmt.Print(b.String())
	if page != "" {
		if err := os.WriteFile(page, append([]byte(heading()), b.Bytes()...), 0o644); err != nil {
			return err
		}
	}
	c, g := m.job("c_echo"), m.job("go_echo")
	fmt.Printf("RESULT go_echo=%.2f c_echo=%.2f go_json=%.2f c_json=%.2f go_sum=%.2f c_sum=%.2f echo_c_ns=%.0f echo_go_ns=%.0f echo_extra_ns=%.0f two_workers=%.2f overrun_ms=%.1f gap_ms=%.1f rewrite_mbs=%.0f inst_go_ms=%.2f inst_json_ms=%.2f inst_c_us=%.0f idle_extra_kib=%.0f overrun_worst_ms=%.1f gap_worst_ms=%.1f gap_control_ms=%.1f\n",
		g.Ratio, c.Ratio, m.job("go_json").Ratio, m.job("c_json").Ratio, m.job("go_sum").Ratio, m.job("c_sum").Ratio,
		c.Metered, g.Metered, max(c.Metered-c.None, g.Metered-g.None), m.TwoWorkers, m.OverrunMS, m.GapMS, m.RewriteMBs, m.InstGoMS, m.InstJSONMS, m.InstCUS, max(m.IdleC, m.IdleGo),
		m.OverrunMax, m.GapMax, m.ControlMS)
	return nil
}

// measureHost runs the measurement inside the package host: no limits at all is
// nothing that it offers to others.
func measureHost(ctx context.Context) (*measured, error) {
	dir, err := os.MkdirTemp("", "sandbox")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "measured.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=10m", "-run=^TestMeasureSandbox$", "./host")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "MQRUN_MEASURE="+out)
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("measure: %w\n%s", err, b)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	m := &measured{}
	return m, json.Unmarshal(b, m)
}

func heading() string {
	return fmt.Sprintf("# What the sandbox costs\n\nBy `make bench-sandbox` on %s, %d cores, %s, %s.\n\n", processor(), runtime.NumCPU(), runtime.Version(), time.Now().UTC().Format(time.DateOnly))
}

func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// write makes the tables, in Markdown.
func (m *measured) write(w io.Writer, ext map[string]float64) {
	titles := map[string]string{
		"go_echo": "Go guest, echo of 1 KiB", "c_echo": "C guest, echo of 1 KiB", "go_sum": "Go guest, sum of 64 KiB", "c_sum": "C guest, sum of 64 KiB",
		"go_json": "Go guest, JSON of 934 bytes read and written", "c_json": "C guest, the same JSON",
	}
	fmt.Fprintln(w, "CPU time of one message, and over that without limits:")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "| job | no limits | wazero's switch | metered | extism/go-sdk 1.7.1 |")
	fmt.Fprintln(w, "|---|---|---|---|---|")
	for _, j := range m.Jobs {
		e := "-"
		if ns, ok := ext[j.Name]; ok {
			e = fmt.Sprintf("%s (%.1fx)", span(ns), ns/j.None)
		}
		fmt.Fprintf(w, "| %s | %s | %s (%.1fx) | %s (%.2fx) | %s |\n", titles[j.Name], span(j.None), span(j.Switch), j.Switch/j.None, span(j.Metered), j.Ratio, e)
	}
	fmt.Fprintf(w, `
| | |
|---|---|
| CPU of a message with two workers, over one | %.2f |
| rewriting a Go module of %.1f MB | %.0f MB/s |
| fresh instance, its start and one message: Go | %s |
| the same, Go with encoding/json | %s |
| the same, C | %s |
| idle instance beside its linear memory: C, Go | %.0f KiB, %.0f KiB |
| instructions between ticks, at most | %d |
| run past a deadline of 200 ms, of every hostile guest the median of seven rounds: the longest | %.1f ms (%s) |
| the same, the worst round of all | %.1f ms |
| pause of a goroutine that wakes every ms, while they run | %.1f ms (%s) |
| the same, the worst round of all | %.1f ms |
| the worst pause in five seconds beside two busy goroutines without WebAssembly | %.1f ms |

`, m.TwoWorkers, float64(m.GoBytes)/1e6, m.RewriteMBs, span(m.InstGoMS*1e6), span(m.InstJSONMS*1e6), span(m.InstCUS*1e3), m.IdleC, m.IdleGo, m.Interval, m.OverrunMS, m.OverrunOf, m.OverrunMax, m.GapMS, m.GapOf, m.GapMax, m.ControlMS)
}

func span(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.1f us", ns/1e3)
	}
	return fmt.Sprintf("%.2f ms", ns/1e6)
}
