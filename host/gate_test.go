package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestGateLetsNoMoreRunThanItMay(t *testing.T) {
	g := newGate(2)
	var in, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			tn := &turn{lane: g.lane(string(rune('a' + i%3)))}
			for range 500 {
				if !g.enter(tn, nil, nil) {
					t.Error("no turn")
				}
				n := in.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				in.Add(-1)
				if g.contended() && !g.yield(tn, g.now(), nil) {
					t.Error("yielded for good")
				}
				g.leave(tn)
			}
		})
	}
	wg.Wait()
	if most.Load() > 2 || g.running() != 0 || len(g.holders) != 0 {
		t.Errorf("%d at once, %d left", most.Load(), len(g.holders))
	}
}

// running is how many turns are in use.
func (g *gate) running() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holders {
		if h.state.Load() == held {
			n++
		}
	}
	return n
}

func TestGateTakesBackATurnThatIsOnlyKept(t *testing.T) {
	g := newGate(1)
	first, second := &turn{lane: g.lane("a")}, &turn{lane: g.lane("b")}
	g.enter(first, nil, nil)
	g.pause(first)
	if !g.enter(first, nil, nil) || first.state.Load() != held {
		t.Error("it was not kept")
	}
	g.pause(first)
	if !g.enter(second, nil, nil) || first.state.Load() != away || len(g.holders) != 1 {
		t.Error("it was not taken back")
	}
	g.leave(second)
}

func TestGateWaitingEndsWithTheContext(t *testing.T) {
	g := newGate(1)
	first, second := &turn{lane: g.lane("a")}, &turn{lane: g.lane("b")}
	g.enter(first, nil, nil)
	end := make(chan struct{})
	got := make(chan bool)
	go func() { got <- g.enter(second, end, nil) }()
	for !g.contended() {
		time.Sleep(time.Millisecond)
	}
	close(end)
	if <-got || g.contended() || second.state.Load() != away {
		t.Error("it did not go")
	}
	g.leave(first)
	if n := g.running(); n != 0 {
		t.Errorf("%d left", n)
	}
}

// The next turn is that of the pipeline that used least, whoever came first.
func TestGateIsFairBetweenPipelines(t *testing.T) {
	g := newGate(1)
	holder := &turn{lane: g.lane("x")}
	g.enter(holder, nil, nil)
	g.lane("busy").charge(g.now(), time.Second)
	order := make(chan string, 4)
	var wg sync.WaitGroup
	for i, name := range []string{"busy", "busy", "calm", "calm"} {
		wg.Go(func() {
			tn := &turn{lane: g.lane(name)}
			g.enter(tn, nil, nil)
			order <- name
			g.leave(tn)
		})
		for g.waiting.Load() != int64(i+1) {
			time.Sleep(time.Millisecond)
		}
	}
	g.leave(holder)
	wg.Wait()
	close(order)
	var got []string
	for n := range order {
		got = append(got, n)
	}
	if want := []string{"calm", "calm", "busy", "busy"}; !equal(got, want) {
		t.Errorf("%v", got)
	}
}

func equal(a, b []string) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// One turn for two guests: the endless loop gives it back at a tick, and takes
// the time in which it waits for no part of its own.
func TestLongGuestGivesItsTurnBack(t *testing.T) {
	r := open(t, Options{Running: 1})
	loadIn := func(name string, s Settings) *Plugin {
		s.Name, s.File = name, name+".wasm"
		p, err := r.Load(t.Context(), guest(t, name), s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	spin := loadIn("probe", hour(Settings{}))
	echo := loadIn("echo", Settings{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		m := (&script{}).do(opSpin).message()
		m.Pipeline = "heavy"
		done <- spin.Handle(ctx, m, &Result{})
	}()
	for r.gate.running() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 100 {
		run(t, echo, message("x"))
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if n := r.gate.running(); n != 0 {
		t.Errorf("%d turns are lost", n)
	}
}

// A guest that sleeps has no turn.
func TestSleepingGuestGivesItsTurnBack(t *testing.T) {
	r := open(t, Options{Running: 1})
	p, err := r.Load(t.Context(), guest(t, "probe"), hour(Settings{Name: "probe", Workers: 2}))
	if err != nil {
		t.Fatal(err)
	}
	stop := busy(t, p)
	run(t, p, (&script{}).ok().message())
	stop()
}

// waited for a turn: the time is not the call's.
func TestTimeInLineIsNotTheCalls(t *testing.T) {
	r := open(t, Options{Running: 1})
	p, err := r.Load(t.Context(), guest(t, "probe"), Settings{Name: "probe", Workers: 1, Limits: Limits{Timeout: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	holder := &turn{lane: r.gate.lane("x")}
	r.gate.enter(holder, nil, nil)
	done := make(chan error, 1)
	go func() { done <- p.Handle(t.Context(), (&script{}).ok().message(), &Result{}) }()
	for !r.gate.contended() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	r.gate.leave(holder)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
