package pipeline

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

func TestBreaker(t *testing.T) {
	const trap = "trap"
	type call struct {
		at      time.Duration
		who     string // "" is an ordinary call
		failure string
		times   int
		did     change // of the last one
	}
	for name, tt := range map[string]struct {
		calls []call
		state breakState
		pause time.Duration
	}{
		"too few":       {[]call{{0, "", trap, 9, unchanged}}, breakClosed, 0},
		"enough":        {[]call{{0, "", trap, 10, opened}}, breakOpen, time.Second},
		"below ratio":   {[]call{{0, "", "", 2, unchanged}, {0, "", trap, 8, unchanged}}, breakClosed, 0},
		"at the ratio":  {[]call{{0, "", "", 1, unchanged}, {0, "", trap, 9, opened}}, breakOpen, time.Second},
		"spread":        {[]call{{0, "", trap, 5, unchanged}, {8 * time.Second, "", trap, 5, opened}}, breakOpen, time.Second},
		"out of window": {[]call{{0, "", trap, 9, unchanged}, {11 * time.Second, "", trap, 9, unchanged}}, breakClosed, 0},
		"a late success": {
			[]call{{0, "", trap, 10, opened}, {0, "", "", 100, unchanged}}, breakOpen, time.Second,
		},
		"trial fails": {
			[]call{{0, "", trap, 10, opened}, {time.Second, "t", trap, 1, stayed}}, breakOpen, 2 * time.Second,
		},
		"trial passes": {
			[]call{{0, "", trap, 10, opened}, {time.Second, "t", "", 1, closed}}, breakClosed, time.Second,
		},
		"counts anew after": {
			[]call{{0, "", trap, 10, opened}, {time.Second, "t", "", 1, closed}, {time.Second, "", trap, 9, unchanged}}, breakClosed, time.Second,
		},
		"closed for a moment": {
			[]call{{0, "", trap, 10, opened}, {time.Second, "t", "", 1, closed}, {2 * time.Second, "", trap, 10, opened}}, breakOpen, 2 * time.Second,
		},
		"closed for long": {
			[]call{
				{0, "", trap, 10, opened}, {time.Second, "t", trap, 1, stayed}, {3 * time.Second, "t", "", 1, closed},
				{14 * time.Second, "", trap, 10, opened},
			}, breakOpen, time.Second,
		},
		"others while half open": {
			[]call{{0, "", trap, 10, opened}, {time.Second, "t", trap, 0, unchanged}, {time.Second, "", trap, 5, unchanged}, {time.Second, "", "", 5, unchanged}}, breakHalf, time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &breaker{cfg: config.Breaker{FailureRatio: 0.9, Window: 10 * time.Second, Min: 10}}
			start := time.Unix(1_000_000, 0)
			for i, c := range tt.calls {
				now := start.Add(c.at)
				if c.who != "" {
					if b.ready(now.Add(-time.Millisecond)) || !b.ready(now) || !b.admit(c.who) || b.admit("another") {
						t.Fatalf("call %d: not half open: %+v", i, b)
					}
				}
				did := unchanged
				for range c.times {
					did = b.result(c.who, c.failure, now)
				}
				if did != c.did {
					t.Fatalf("call %d: change %d; want %d", i, did, c.did)
				}
			}
			if b.state != tt.state || b.pause != tt.pause {
				t.Errorf("state %d, pause %v; want %d, %v", b.state, b.pause, tt.state, tt.pause)
			}
			if b.state == breakOpen && b.admit("x") {
				t.Error("open, and lets through")
			}
		})
	}
}

func TestBreakerPauseIsBounded(t *testing.T) {
	b := &breaker{cfg: config.Breaker{FailureRatio: 0.9, Window: time.Second, Min: 1}}
	now := time.Unix(1_000_000, 0)
	b.result(nil, "trap", now)
	for range 20 {
		now = b.until
		if !b.ready(now) || !b.admit("t") {
			t.Fatal("no trial")
		}
		b.withdraw("t") // it came to no call
		if !b.ready(now) || !b.admit("t") {
			t.Fatal("no second trial")
		}
		b.result("t", "trap", now)
	}
	if b.pause != breakMost {
		t.Errorf("pause %v; want %v", b.pause, breakMost)
	}
}

func TestInstanceFailed(t *testing.T) {
	for o, want := range map[string]bool{
		"": false, "trap": true, "timeout": true, "fuel": true, "memory": true, "exit": true, "abi": true,
		"emit": false, "forbidden": false, "limit": false, "publish": false,
	} {
		if got := instanceFailed(outcome{failure: o}); got != want {
			t.Errorf("%q: %v", o, got)
		}
	}
}

// A plugin that breaks down under a backlog: nothing becomes a dead letter, the
// pipeline says why it stands, and goes on by itself.
func TestBreakerKeepsABacklog(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"none": "", "subject": "", "strict": "", "batch": ", commit: batch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order := name
			if more != "" {
				order = "none"
			}
			var broken atomic.Bool
			var failed atomic.Int64
			var mu sync.Mutex
			attempts := map[string]int{}
			broken.Store(true)
			r := newRig(t, strings.Replace(ordered(order, more+", max_in_flight: 64, breaker: { min: 8, window: 5s }"), "attempts: 3, initial: 50ms", "attempts: 30, initial: 20ms", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
				mu.Lock()
				attempts[string(m.Data)] = m.Attempt
				mu.Unlock()
				if broken.Load() {
					failed.Add(1)
					return &host.CallError{Reason: host.ReasonTrap, Text: "a: trap: unreachable"}
				}
				emit(r, "", string(m.Data))
				return nil
			}})
			const n = 300
			for i := range n {
				r.pub("orders.k"+fmt.Sprint(i%5), fmt.Sprint(i))
			}
			st := r.state("orders", StateBreaker, "trap: unreachable")
			if st.Ready() {
				t.Errorf("%+v is ready", st)
			}
			before := failed.Load()
			if before > 20 {
				t.Errorf("%d calls before it opened; min is 8", before)
			}
			r.eventually(func() error { // a trial that fails
				if f := failed.Load(); f < before+1 {
					return fmt.Errorf("%d calls", f)
				}
				return nil
			})
			if st := r.m.Status()[0]; st.State != StateBreaker || st.Dead != 0 {
				t.Errorf("%+v", st)
			}
			broken.Store(false)
			r.outputs(n)
			r.settled("MQRUN", "orders")
			r.state("orders", StateRunning, "")
			if d, o := r.count("MQRUN_DLQ", "dlq.>"), r.count("MQRUN_ORDERS", "done.orders"); d != 0 || o != n {
				t.Errorf("%d dead letters, %d outputs", d, o)
			}
			charged := 0
			for _, a := range attempts {
				charged += a - 1
			}
			if f := int(failed.Load()); charged != f {
				t.Errorf("%d attempts charged for %d failed calls", charged, f)
			}
		})
	}
}

// The messages that fail together when it opens are not given up for it, even
// at their last attempt; and judgements are no failures.
func TestBreakerSparesTheLastAttempt(t *testing.T) {
	t.Parallel()
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			broken.Store(true)
			var calls atomic.Int64
			in := make(chan struct{})
			r := newRig(t, strings.Replace(ordered("none", ", commit: "+commit+", breaker: { min: 4, window: 5s }"), "attempts: 3", "attempts: 1", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
				switch {
				case strings.HasPrefix(string(m.Data), "bad"):
					r.Code = host.Reject
					return nil
				case broken.Load():
					if calls.Add(1) == 4 { // all workers are in a call
						close(in)
					}
					<-in
					return &host.CallError{Reason: host.ReasonTrap, Text: "a: trap"}
				}
				emit(r, "", string(m.Data))
				return nil
			}})
			for i := range 20 {
				r.pub("orders.x", fmt.Sprint("bad", i))
			}
			r.read("MQRUN_DLQ", "dlq.orders", 20)
			if st := r.m.Status()[0]; st.State != StateRunning {
				t.Fatalf("%+v: rejected messages are no failures", st)
			}
			r.apply(strings.Replace(ordered("none", ", commit: "+commit+", breaker: { min: 4, window: 5s, failure_ratio: 0.1 }"), "attempts: 3", "attempts: 1", 1))
			for i := range 4 {
				r.pub("orders.x", fmt.Sprint(i))
			}
			r.state("orders", StateBreaker, "")
			broken.Store(false)
			r.outputs(1)
			r.settled("MQRUN", "orders")
			// Three failed before it was open, the fourth opened it.
			if d, o := r.count("MQRUN_DLQ", "dlq.>")-20, r.count("MQRUN_ORDERS", "done.orders"); d != 3 || o != 1 {
				t.Errorf("%d dead letters, %d outputs; want 3, 1", d, o)
			}
		})
	}
}

func TestReloadClosesTheBreaker(t *testing.T) {
	t.Parallel()
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			t.Parallel()
			yaml := ordered("none", ", commit: "+commit+", breaker: { min: 2, window: 5s }")
			r := newRig(t, yaml, map[string]native{
				"a": func(*host.Message, *host.Result) error {
					return &host.CallError{Reason: host.ReasonTrap, Text: "a: trap"}
				},
				"b": echo,
			})
			for i := range 10 {
				r.pub("orders.x", fmt.Sprint(i))
			}
			r.state("orders", StateBreaker, "")
			r.eventually(func() error { // the pause is long enough now
				if p := r.pauseOf("orders"); p < 2*time.Second {
					return fmt.Errorf("pause %v", p)
				}
				return nil
			})
			r.apply(strings.Replace(yaml, "a.wasm", "b.wasm", 1))
			r.state("orders", StateRunning, "")
			r.outputs(10)
			r.settled("MQRUN", "orders")
		})
	}
}

func TestStopWhileTheBreakerIsOpen(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			yaml := ordered("none", ", commit: "+commit+", breaker: { min: 2, window: 5s }")
			r := newRig(t, yaml, map[string]native{"a": func(*host.Message, *host.Result) error {
				return &host.CallError{Reason: host.ReasonTrap, Text: "a: trap"}
			}})
			for i := range 30 {
				r.pub("orders.x", fmt.Sprint(i))
			}
			r.state("orders", StateBreaker, "")
			r.stopManager()
			var left int
			if commit == "each" {
				c, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
				if err != nil {
					t.Fatal(err)
				}
				left = c.CachedInfo().NumAckPending + int(c.CachedInfo().NumPending)
			} else {
				left = 30 - int(r.checkpoint("orders").Sequence) + r.count("MQRUN_ORDERS", "mqrun.MQRUN_ORDERS.retry.>")
			}
			if d := r.count("MQRUN_DLQ", "dlq.>"); d != 0 || left != 30 {
				t.Errorf("%d dead letters, %d left", d, left)
			}
			r.restartManager(yaml)
		})
	}
}

// pauseOf is the pause of a pipeline's breaker.
func (r *rig) pauseOf(name string) time.Duration {
	e := r.m.engine(name)
	pause := func(l sync.Locker, b **breaker) time.Duration {
		l.Lock()
		defer l.Unlock()
		return (*b).pause
	}
	if p, ok := e.(*pipeline); ok {
		return pause(&p.mu, &p.breaker)
	}
	t := e.(*batch).current()
	return pause(&t.mu, &t.breaker)
}
