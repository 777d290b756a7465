package host

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mqrun/mqrun/host/meter"
)

// measured is what TestMeasureSandbox finds out. CPU in ns by call.
type measured struct {
	Jobs          []job
	TwoWorkers    float64 // CPU of a message with two workers, over that with one
	OverrunMS     float64 // longest that a hostile guest ran past its deadline of 200 ms
	OverrunOf     string
	OverrunMax    float64
	GapMS         float64 // longest pause of a goroutine that wakes every ms while they run
	GapOf         string
	GapMax        float64
	RewriteMBs    float64
	InstGoMS      float64 // a fresh instance, its start and one message
	InstJSONMS    float64
	InstCUS       float64
	IdleC, IdleGo float64 // KiB that an idle instance takes beside its linear memory
	ControlMS     float64 // the same pause beside two goroutines that are as busy
	Interval      int
	GoBytes       int
	Go            string
}

type job struct {
	Name                  string
	None, Switch, Metered float64
	Ratio                 float64 // metered to none, median of the rounds
}

// cpu is what this process used so far.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// TestMeasureSandbox is what `make bench-sandbox` runs; the environment names
// the file for what it finds. It is here, since no limits at all is nothing
// that the package offers.
func TestMeasureSandbox(t *testing.T) {
	out := os.Getenv("MQRUN_MEASURE")
	if out == "" {
		t.Skip("MQRUN_MEASURE is not set")
	}
	goMin, goJSON := buildGo(t, "gomin"), buildGo(t, "gojson")
	event, err := os.ReadFile("testdata/bench/event.json")
	if err != nil {
		t.Fatal(err)
	}
	kib, large := make([]byte, 1<<10), make([]byte, 64<<10)
	m := &measured{Interval: interval, GoBytes: len(goJSON), Go: runtime.Version()}
	for _, j := range []struct {
		name string
		wasm []byte
		data []byte
	}{
		{"go_echo", goMin, kib}, {"c_echo", guest(t, "bench/c/echo"), kib},
		{"go_sum", goMin, large}, {"c_sum", guest(t, "bench/c/sum"), large},
		{"go_json", goJSON, event}, {"c_json", guest(t, "bench/c/json"), event},
	} {
		m.Jobs = append(m.Jobs, measureJob(t, j.name, j.wasm, j.data))
		t.Logf("%+v", m.Jobs[len(m.Jobs)-1])
	}
	m.TwoWorkers = twoWorkers(t, guest(t, "bench/c/echo"), kib)
	m.InstGoMS = fresh(t, goMin, kib, 100) / 1e6
	m.InstJSONMS = fresh(t, goJSON, event, 60) / 1e6
	m.InstCUS = fresh(t, guest(t, "bench/c/echo"), kib, 2000) / 1e3
	m.RewriteMBs = rewriting(t, goJSON)
	m.IdleGo, m.IdleC = idle(t, goMin, kib), idle(t, guest(t, "bench/c/echo"), kib)
	m.ControlMS = control()
	m.hostiles(t)
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, b, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", b)
}

func buildGo(t *testing.T, name string) []byte {
	t.Helper()
	wasm := filepath.Join(t.TempDir(), name+".wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", wasm, "./testdata/bench/"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, b)
	}
	b, err := os.ReadFile(wasm)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func loadBytes(t *testing.T, r *Runtime, wasm []byte, s Settings) *Plugin {
	t.Helper()
	if s.Name == "" {
		s.Name = "guest"
	}
	p, err := r.Load(t.Context(), wasm, s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// spend gives the CPU of n calls, in ns by call.
func spend(t *testing.T, p *Plugin, data []byte, n int) float64 {
	t.Helper()
	m, res := message(string(data)), &Result{}
	before := cpu()
	for range n {
		if err := p.Handle(t.Context(), m, res); err != nil || res.Code != OK {
			t.Fatal(err, res.Code)
		}
	}
	return float64(cpu()-before) / float64(n)
}

// measureJob runs the same guest without limits, with wazero's switch, and
// metered, in turns.
func measureJob(t *testing.T, name string, wasm, data []byte) job {
	t.Helper()
	r := open(t, Options{})
	columns := []Settings{{Trusted: true, bare: true}, {Trusted: true}, {}}
	var ps []*Plugin
	for _, s := range columns {
		s.Workers = 1
		ps = append(ps, loadBytes(t, r, wasm, s))
	}
	spend(t, ps[2], data, 1000)
	n := int(max(20, 20e6/spend(t, ps[0], data, 200))) // 20 ms
	const rounds = 15
	ns := make([][]float64, len(ps))
	ratios := make([]float64, rounds)
	for i := range rounds {
		for k, p := range ps {
			count := n
			if k == 1 {
				count = max(10, n/5)
			}
			ns[k] = append(ns[k], spend(t, p, data, count))
		}
		ratios[i] = ns[2][i] / ns[0][i]
	}
	return job{Name: name, None: median(ns[0]), Switch: median(ns[1]), Metered: median(ns[2]), Ratio: median(ratios)}
}

func twoWorkers(t *testing.T, wasm, data []byte) float64 {
	p := loadBytes(t, open(t, Options{}), wasm, Settings{Workers: 2})
	const n = 100_000
	run := func(workers int) float64 {
		var wg sync.WaitGroup
		before := cpu()
		for range workers {
			wg.Go(func() {
				m, res := message(string(data)), &Result{}
				for range n / workers {
					if err := p.Handle(t.Context(), m, res); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(cpu()-before) / n
	}
	run(2)
	var ratios []float64
	for range 11 {
		one := run(1)
		ratios = append(ratios, run(2)/one)
	}
	return median(ratios)
}

// fresh is the CPU of a call that gets an instance of its own.
func fresh(t *testing.T, wasm, data []byte, n int) float64 {
	p := loadBytes(t, open(t, Options{}), wasm, Settings{Isolation: "message", Workers: 1})
	spend(t, p, data, n/10)
	var ns []float64
	for range 7 {
		ns = append(ns, spend(t, p, data, n))
	}
	return median(ns)
}

func rewriting(t *testing.T, wasm []byte) float64 {
	var mbs []float64
	for range 9 {
		before := cpu()
		if _, _, err := meter.Rewrite(wasm, meter.Options{Merge: true}); err != nil {
			t.Fatal(err)
		}
		mbs = append(mbs, float64(len(wasm))/1e6/(cpu()-before).Seconds())
	}
	return median(mbs)
}

// idle is what an instance that has handled a message takes of Go's heap; its
// linear memory is not there.
func idle(t *testing.T, wasm, data []byte) float64 {
	const n = 50
	p := loadBytes(t, open(t, Options{}), wasm, Settings{Workers: n + 1})
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	ins := make([]*instance, n)
	m, res := message(string(data)), &Result{}
	for i := range ins {
		in, err := p.pool.get(t.Context(), "")
		if err == nil {
			err = in.handle(t.Context(), m, res)
		}
		if err != nil {
			t.Fatal(err)
		}
		ins[i] = in
	}
	extra := (heap() - before) / n / 1024
	for _, in := range ins {
		p.pool.put(in)
	}
	return extra
}

// hostiles runs every hostile guest that ends at its deadline, two at once, with
// a heart that beats every ms. Of each guest counts the median of some rounds:
// the worst round is told too, and is often the machine's.
func (m *measured) hostiles(t *testing.T) {
	const rounds = 7
	for _, h := range hostiles() {
		if h.reason != ReasonTimeout {
			continue
		}
		p := loadBytes(t, open(t, Options{}), h.module(t), Settings{Limits: h.limits, Workers: 2})
		var overruns, gaps []float64
		for range rounds {
			beat := heartbeat()
			overruns = append(overruns, twice(t, p, h.limits.Timeout).Seconds()*1e3)
			gaps = append(gaps, beat().Seconds()*1e3)
		}
		t.Logf("%-40s overrun %.1f to %.1f ms, gap %.1f to %.1f ms", h.name, median(overruns), slices.Max(overruns), median(gaps), slices.Max(gaps))
		if ms := median(overruns); ms > m.OverrunMS {
			m.OverrunMS, m.OverrunOf = ms, h.name
		}
		if ms := median(gaps); ms > m.GapMS {
			m.GapMS, m.GapOf = ms, h.name
		}
		m.OverrunMax, m.GapMax = max(m.OverrunMax, slices.Max(overruns)), max(m.GapMax, slices.Max(gaps))
	}
}

// twice calls a plugin from two goroutines and gives how long the longer call
// ran past its deadline.
func twice(t *testing.T, p *Plugin, limit time.Duration) time.Duration {
	var took [2]time.Duration
	var wg sync.WaitGroup
	for i := range took {
		wg.Go(func() {
			began := time.Now()
			if err := p.Handle(t.Context(), message(""), &Result{}); err == nil {
				t.Error("it returned")
			}
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	return max(took[0], took[1]) - limit
}

// heartbeat wakes every ms until the function it gives is called, which says how
// long the longest pause was.
func heartbeat() (stop func() time.Duration) {
	end, gap := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		last := time.Now()
		for {
			select {
			case <-end:
				gap <- longest
				return
			case <-time.After(time.Millisecond):
			}
			now := time.Now()
			longest = max(longest, now.Sub(last))
			last = now
		}
	}()
	return func() time.Duration { close(end); return <-gap }
}

// control is the longest pause beside two goroutines that are as busy as guests:
// what is the machine's.
func control() float64 {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for began := time.Now(); time.Since(began) < 50*time.Microsecond; {
				}
				runtime.Gosched()
			}
		})
	}
	beat := heartbeat()
	time.Sleep(5 * time.Second)
	gap := beat()
	close(stop)
	wg.Wait()
	return gap.Seconds() * 1e3
}
