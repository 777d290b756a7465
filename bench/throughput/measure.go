package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// job is what every engine gets: a server with stored messages.
type job struct {
	ctx  context.Context
	dir  string
	e    *mq.EmbeddedNATS
	end  func() error
	in   string // stream and subject of the input; the output's are fixed by it
	size int
}

const (
	maxBytes   = 64 << 30
	inSubject  = "in.a"
	outSubject = "out.a"
)

// engine starts the job and returns how to stop it.
type engine struct {
	name  string
	start func(*job) (stop func() error, err error)
}

// relaxed runs an engine with the garbage collector as `mqrun run` sets it.
func relaxed(e engine) engine {
	return engine{e.name, func(j *job) (func() error, error) {
		ctx, cancel := context.WithCancel(j.ctx)
		var gc sync.WaitGroup
		gc.Go(func() { mq.RelaxGC(ctx, 64<<20) })
		end := func() { cancel(); gc.Wait() }
		stop, err := e.start(j)
		if err != nil {
			end()
			return nil, err
		}
		return func() error { defer end(); return stop() }, nil
	}}
}

// sample is one run.
type sample struct {
	rate   float64 // messages a second
	cpu    float64 // us a message, of the whole process
	allocs float64 // a message
	peak   float64 // MiB of resident memory

	p50, p99, p999 float64 // ms, of a run at a steady rate
}

// settings of a run.
type settings struct {
	sync   time.Duration // of the store; 0 is before every confirmation
	size   int           // bytes of a message
	length time.Duration
	warmUp time.Duration
	stored int  // messages put into the input first
	remote bool // the server is a process of its own, and not counted
}

// run measures one engine on a fresh store.
func run(ctx context.Context, e engine, s settings) (got sample, err error) {
	dir, err := os.MkdirTemp("", "mqrun-bench")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(dir)
	j, err := prepare(ctx, dir, s)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, j.end()) }()
	runtime.GC()
	stop, err := e.start(j)
	if err != nil {
		return sample{}, fmt.Errorf("start %s: %w", e.name, err)
	}
	got, err = window(j, s)
	return got, errors.Join(err, stop())
}

// prepare makes the streams that mqrun would make and fills the input.
func prepare(ctx context.Context, dir string, s settings) (*job, error) {
	// Filled without fsync, then opened as the run wants it.
	e, err := mq.Open(ctx, mq.Options{StoreDir: filepath.Join(dir, "store"), MaxBytes: maxBytes, SyncInterval: time.Minute, Bare: true, Logger: quiet})
	if err != nil {
		return nil, err
	}
	for _, spec := range []mq.StreamSpec{
		{Name: "MQRUN", Subjects: []string{"ingest.>", "in.>", "mqrun.MQRUN.>"}, MaxBytes: maxBytes / 4},
		{Name: "MQRUN_JOB", Subjects: []string{"out.>", "mqrun.MQRUN_JOB.>"}, MaxBytes: maxBytes / 4},
	} {
		if _, err := mq.EnsureStream(ctx, e.JetStream(), spec); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	if err := fill(ctx, e.NatsConn(), s); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	j := &job{ctx: ctx, dir: dir, in: "MQRUN", size: s.size}
	if s.remote {
		j.e, j.end, err = remote(ctx, dir, s.sync)
		return j, err
	}
	j.e, err = mq.Open(ctx, mq.Options{StoreDir: filepath.Join(dir, "store"), MaxBytes: maxBytes, SyncInterval: s.sync, Bare: true, Logger: quiet})
	if err != nil {
		return nil, err
	}
	j.end = j.e.Close
	return j, nil
}

func fill(ctx context.Context, nc *nats.Conn, s settings) error {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2048))
	if err != nil {
		return err
	}
	for i := range s.stored {
		if _, err := js.PublishAsync(inSubject, payload(i, s.size)); err != nil {
			return err
		}
		if i%1024 == 1023 || i == s.stored-1 {
			select {
			case <-js.PublishAsyncComplete():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// payload is a JSON object of n bytes.
func payload(i, n int) []byte {
	b := append([]byte(`{"id":`), strconv.Itoa(i)...)
	b = append(b, `,"name":"sensor","value":12.5,"text":"`...)
	for len(b) < n-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

// window watches the output stream: the warm-up is dropped, then messages, CPU
// and allocations are counted until the time is over or the input used up.
func window(j *job, s settings) (sample, error) {
	out, err := j.e.JetStream().Stream(j.ctx, "MQRUN_JOB")
	if err != nil {
		return sample{}, err
	}
	count := func() (uint64, error) {
		info, err := out.Info(j.ctx, jetstream.WithSubjectFilter(outSubject))
		if err != nil {
			return 0, err
		}
		return info.State.Subjects[outSubject], nil
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var from, to struct {
		n   uint64
		at  time.Time
		cpu time.Duration
		mem runtime.MemStats
	}
	began, peak := time.Now(), 0.0
	for {
		select {
		case <-j.ctx.Done():
			return sample{}, j.ctx.Err()
		case <-tick.C:
		}
		n, err := count()
		if err != nil {
			return sample{}, err
		}
		peak = max(peak, resident())
		now := time.Now()
		switch {
		case from.at.IsZero() && now.Sub(began) >= s.warmUp && n > 0:
			runtime.ReadMemStats(&from.mem)
			from.n, from.at, from.cpu = n, time.Now(), cpuTime()
		case now.Sub(began) > s.warmUp+10*s.length+time.Minute:
			return sample{}, fmt.Errorf("%d of %d messages after %v", n, s.stored, now.Sub(began))
		case !from.at.IsZero() && (now.Sub(from.at) >= s.length || n >= uint64(s.stored)):
			to.n, to.at, to.cpu = n, now, cpuTime()
			runtime.ReadMemStats(&to.mem)
			done := float64(to.n - from.n)
			if done == 0 {
				return sample{}, fmt.Errorf("all %d messages were done within the warm-up: store more", n)
			}
			return sample{
				rate: done / to.at.Sub(from.at).Seconds(), cpu: float64((to.cpu - from.cpu).Microseconds()) / done,
				allocs: float64(to.mem.Mallocs-from.mem.Mallocs) / done, peak: peak,
			}, nil
		}
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the process's memory in MiB.
func resident() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0
	}
	return float64(pages*int64(os.Getpagesize())) / (1 << 20)
}

// spread is the least, middle and greatest of some figures.
type spread struct{ min, mid, max float64 }

func spreadOf(v []float64) spread {
	v = slices.Sorted(slices.Values(v))
	return spread{v[0], v[len(v)/2], v[len(v)-1]}
}

func expNeg(x float64) float64 { return math.Exp(-x) }
