package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// finer measures what the tables do not: latency at a steady rate, and the
// allocations that our own code makes.
func (b *bench) finer(g guests) error {
	if strings.Contains("latency", b.only) {
		if err := b.latency([]engine{native(64), g.engine("c-echo", "each", 1), g.engine("c-echo", "batch", 1)}); err != nil {
			return err
		}
	}
	if strings.Contains("allocations", b.only) {
		return b.ownAllocations(g.engine("c-echo", "each", 1))
	}
	return nil
}

// profiled runs one engine under the CPU profiler.
func (b *bench) profiled(e engine) error {
	f, err := os.Create(b.profile)
	if err != nil {
		return err
	}
	defer f.Close()
	s := settings{sync: 2 * time.Minute, size: 1 << 10, length: b.length, warmUp: b.warmUp, stored: int(60_000 * (b.warmUp + b.length).Seconds())}
	e2 := engine{e.name, func(j *job) (func() error, error) {
		stop, err := e.start(j)
		if err != nil {
			return nil, err
		}
		return func() error { pprof.StopCPUProfile(); return stop() }, pprof.StartCPUProfile(f)
	}}
	got, err := run(b.ctx, e2, s)
	if err != nil {
		return err
	}
	b.figure("rate", got.rate)
	b.figure("cpu_us", got.cpu)
	return nil
}

// latency feeds 1,000 messages a second and takes the time from before the
// publish to the arrival of the output.
func (b *bench) latency(engines []engine) error {
	fmt.Println("latency at 1,000 msg/s, 1 KiB, sync 2m")
	p99 := map[string][]float64{}
	t := table{title: "Latency at 1,000 msg/s, 1 KiB, sync 2m", rows: make([]row, len(engines))}
	for range b.rounds {
		for i, e := range engines {
			v, err := b.latencyOf(e)
			if err != nil {
				return fmt.Errorf("latency of %s: %w", e.name, err)
			}
			at := func(q float64) float64 { return v[int(q*float64(len(v)-1))].Seconds() * 1e3 }
			fmt.Printf("  %-34s p50 %.2f p99 %.2f p99.9 %.2f ms\n", e.name, at(0.5), at(0.99), at(0.999))
			p99[e.name] = append(p99[e.name], at(0.99))
			t.rows[i].name = e.name
			t.rows[i].samples = append(t.rows[i].samples, sample{p50: at(0.5), p99: at(0.99), p999: at(0.999)})
		}
	}
	b.latencies = t
	b.figure("p99_ratio_1k", spreadOf(p99[engines[1].name]).mid/spreadOf(p99[engines[0].name]).mid)
	b.figure("p99_ratio_1k_batch", spreadOf(p99[engines[2].name]).mid/spreadOf(p99[engines[0].name]).mid)
	return nil
}

func (b *bench) latencyOf(e engine) (sorted []time.Duration, err error) {
	dir, err := os.MkdirTemp("", "mqrun-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	j, err := prepare(b.ctx, dir, settings{sync: 2 * time.Minute, size: 1 << 10})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.end()) }()
	stop, err := e.start(j)
	if err != nil {
		return nil, err
	}
	nc, err := j.e.Connect("sink")
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	defer nc.Close()
	var mu sync.Mutex
	var got []time.Duration
	began := time.Now()
	if _, err := nc.Subscribe(outSubject, func(m *nats.Msg) {
		d := time.Since(began) - time.Duration(binary.BigEndian.Uint64(m.Data))
		mu.Lock()
		got = append(got, d)
		mu.Unlock()
	}); err != nil {
		return nil, errors.Join(err, stop())
	}
	if err := nc.Flush(); err != nil {
		return nil, errors.Join(err, stop())
	}
	n := int(1000 * (b.warmUp + b.length).Seconds())
	for i := range n {
		if wait := time.Until(began.Add(time.Duration(i) * time.Millisecond)); wait > 0 {
			time.Sleep(wait) // the pace is what is asked for
		}
		data := make([]byte, 1<<10)
		binary.BigEndian.PutUint64(data, uint64(time.Since(began)))
		if err := nc.Publish(inSubject, data); err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	for done := 0; done < n; {
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%d of %d outputs came", done, n), stop())
		case <-time.After(10 * time.Millisecond):
		}
		mu.Lock()
		done = len(got)
		mu.Unlock()
	}
	return slices.Sorted(slices.Values(got[int(1000*b.warmUp.Seconds()):])), stop()
}

// ownAllocations counts, over many messages, the allocations whose leaf is a
// function of ours. It samples: one in every 512 bytes.
func (b *bench) ownAllocations(e engine) error {
	was := runtime.MemProfileRate
	runtime.MemProfileRate = 512
	defer func() { runtime.MemProfileRate = was }()
	stored := 1_000_000
	if b.rounds == 1 {
		stored = 100_000
	}
	before := ownAllocs()
	s := settings{sync: 2 * time.Minute, size: 1 << 10, length: 5 * time.Minute, warmUp: 0, stored: stored}
	if _, err := run(b.ctx, e, s); err != nil {
		return err
	}
	by := ownAllocs()
	total := 0.0
	for name, n := range by {
		if n -= before[name]; n/float64(stored) >= 0.005 {
			fmt.Printf("  %8.3f allocations a message in %s\n", n/float64(stored), filepath.Base(name))
		}
		total += n
	}
	b.figure("allocs_ours", total/float64(stored))
	return nil
}

func ownAllocs() map[string]float64 {
	runtime.GC()
	runtime.GC()
	var rec []runtime.MemProfileRecord
	for n, ok := runtime.MemProfile(nil, true); !ok; {
		rec = make([]runtime.MemProfileRecord, n+100)
		n, ok = runtime.MemProfile(rec, true)
		rec = rec[:min(n, len(rec))]
	}
	by := map[string]float64{}
	for _, r := range rec {
		if r.AllocObjects == 0 {
			continue
		}
		// The first function outside the runtime allocated.
		frames := runtime.CallersFrames(r.Stack())
		for {
			f, more := frames.Next()
			if strings.HasPrefix(f.Function, "runtime.") || strings.HasPrefix(f.Function, "internal/runtime/") {
				if more {
					continue
				}
				break
			}
			if strings.HasPrefix(f.Function, "github.com/mqrun/mqrun/") && !strings.HasPrefix(f.Function, "github.com/mqrun/mqrun/bench/") {
				// Undo the sampling, as pprof does.
				size := float64(r.AllocBytes) / float64(r.AllocObjects)
				by[f.Function] += float64(r.AllocObjects) / (1 - expNeg(size/float64(runtime.MemProfileRate)))
			}
			break
		}
	}
	return by
}
