package host

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// busy starts a call that lasts until stop is called, and returns once it runs.
func busy(t *testing.T, p *Plugin) (stop func() error) {
	t.Helper()
	return busyWith(t, p, sleep(time.Hour))
}

func busyWith(t *testing.T, p *Plugin, s *script) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	before := p.pool.running()
	go func() { done <- p.Handle(ctx, s.message(), &Result{}) }()
	for p.pool.running() == before {
		time.Sleep(time.Millisecond)
	}
	return func() error { cancel(); return <-done }
}

func (p *pool) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.out)
	for _, in := range p.out {
		if in.parked.Load() {
			n--
		}
	}
	return n
}

// settle waits until what failed is gone.
func (p *pool) settle() {
	for {
		p.mu.Lock()
		p.unpark()
		done := p.alive == len(p.idle)
		p.unlock()
		if done {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *pool) inLine() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

func hour(s Settings) Settings {
	s.Limits.Timeout = time.Hour
	return s
}

func TestPoolHandsOutTheLastReturnedFirst(t *testing.T) {
	p := load(t, "probe", hour(Settings{Workers: 2}))
	stop := busy(t, p)
	run(t, p, (&script{}).do(opCount).message())
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// The cancelled one is gone; the other is used again and again.
	for want := int32(2); want < 5; want++ {
		if n := run(t, p, (&script{}).do(opCount).message()).Code; n != want {
			t.Errorf("counted %d, want %d", n, want)
		}
	}
}

func TestWSM11_NeverMoreInstancesThanWorkers(t *testing.T) {
	p := load(t, "probe", hour(Settings{Workers: 2}))
	stop1, stop2 := busy(t, p), busy(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	third := make(chan error, 1)
	go func() { third <- p.Handle(ctx, (&script{}).ok().message(), &Result{}) }()
	for p.pool.inLine() == 0 {
		time.Sleep(time.Millisecond)
	}
	if n := p.pool.running(); n != 2 {
		t.Errorf("%d running", n)
	}
	cancel()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	go func() { third <- p.Handle(t.Context(), (&script{}).ok().message(), &Result{}) }()
	for p.pool.inLine() == 0 {
		time.Sleep(time.Millisecond)
	}
	stop1() // its instance dies; the one in line starts another
	if err := <-third; err != nil {
		t.Error(err)
	}
	stop2()
}

func TestSetWorkers(t *testing.T) {
	p := load(t, "probe", hour(Settings{Workers: 1}))
	stop := busy(t, p)
	second := make(chan error, 1)
	go func() { second <- p.Handle(t.Context(), (&script{}).ok().message(), &Result{}) }()
	for p.pool.inLine() == 0 {
		time.Sleep(time.Millisecond)
	}
	p.SetWorkers(2)
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	p.SetWorkers(0) // counts as one
	if p.pool.alive != 1 {
		t.Errorf("%d alive for one worker", p.pool.alive)
	}
	stop()
	run(t, p, (&script{}).ok().message())
}

func TestIsolationMessage(t *testing.T) {
	p := load(t, "probe", Settings{Isolation: "message"})
	for range 3 {
		if n := run(t, p, (&script{}).do(opCount).message()).Code; n != 1 {
			t.Errorf("counted %d in a fresh instance", n)
		}
	}
	if p.pool.alive != 0 {
		t.Errorf("%d instances kept", p.pool.alive)
	}
}

func TestCloseWaitsForRunningCalls(t *testing.T) {
	p := load(t, "probe", hour(Settings{Workers: 2}))
	stop := busy(t, p)
	closed := make(chan error, 1)
	go func() { closed <- p.Close(t.Context()) }()
	for {
		if err := p.Handle(t.Context(), (&script{}).ok().message(), &Result{}); errors.Is(err, ErrClosed) {
			break
		}
	}
	select {
	case err := <-closed:
		t.Fatalf("closed under a running call: %v", err)
	default:
	}
	stop()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestCloseStopsCallsWhenItsContextEnds(t *testing.T) {
	p := load(t, "probe", hour(Settings{}))
	done := make(chan error, 1)
	go func() { done <- p.Handle(context.Background(), (&script{}).do(opSpin).message(), &Result{}) }()
	for p.pool.running() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("the call ended with %v", err)
	}
	if err := p.Close(t.Context()); err != nil { // waits for the end
		t.Error(err)
	}
}

func TestWaitingCallsEndWithClose(t *testing.T) {
	p := load(t, "probe", hour(Settings{Workers: 1}))
	stop := busy(t, p)
	second := make(chan error, 1)
	go func() { second <- p.Handle(t.Context(), (&script{}).ok().message(), &Result{}) }()
	for p.pool.inLine() == 0 {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close(t.Context()) }()
	if err := <-second; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	stop()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A context of one message that ends after it must not end the next one.
func TestContextsOfEarlierMessagesDoNotCount(t *testing.T) {
	p := load(t, "probe", Settings{Workers: 1})
	for want := int32(1); want < 50; want++ {
		ctx, cancel := context.WithCancel(t.Context())
		res := &Result{}
		if err := p.Handle(ctx, (&script{}).do(opCount).message(), res); err != nil {
			t.Fatal(err)
		}
		cancel()
		if res.Code != want {
			t.Fatalf("the instance was replaced: counted %d, want %d", res.Code, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Handle(ctx, (&script{}).ok().message(), &Result{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Everything at once, for the race detector.
func TestPoolUnderLoad(t *testing.T) {
	p := load(t, "probe", Settings{Workers: 2, Recycle: 7, Limits: Limits{Timeout: 10 * time.Second}})
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			var res Result
			for i := range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				s := &script{}
				switch (w + i) % 5 {
				case 0:
					s.do(opTrap)
				case 1:
					s = sleep(time.Hour)
					time.AfterFunc(time.Millisecond, cancel)
				default:
					s.emit("", "x").print(1, "line\n").ok()
				}
				err := p.Handle(ctx, s.message(), &res)
				var ce *CallError
				if err != nil && !errors.As(err, &ce) && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				p.SetWorkers(1 + i%3)
				cancel()
			}
		})
	}
	wg.Wait()
	p.pool.settle()
	if p.pool.alive > 3 || p.pool.alive != len(p.pool.idle) || len(p.pool.out) != 0 {
		t.Errorf("%d alive, %d idle, %d out", p.pool.alive, len(p.pool.idle), len(p.pool.out))
	}
}
