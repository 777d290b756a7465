package pipeline

import (
	"sync"
	"time"

	"github.com/mqrun/mqrun/config"
)

// fuse is an engine's breaker with the messages that wait for it to close. The
// engine's lock guards it.
type fuse[T comparable] struct {
	breaker *breaker // nil: none
	parked  []T
	called  bool // one of them is with the workers, as a trial

	engine *walker
	lock   *sync.Mutex
	pace   func() // pulls, or not; the lock is held
	resume func(T)
}

func newBreaker(c *config.Pipeline) *breaker {
	if !c.Breaker.On {
		return nil
	}
	return &breaker{cfg: c.Breaker}
}

// shut reports whether the breaker lets nothing through that is not in work
// already. The lock is held.
func (f *fuse[T]) shut() bool {
	b := f.breaker
	return b != nil && (b.state == breakOpen || b.state == breakHalf && (b.trial != nil || f.called || len(f.parked) > 0))
}

// tripped says why nothing goes on, "" when it does. The lock is held.
func (f *fuse[T]) tripped() string {
	if f.breaker == nil || f.breaker.state == breakClosed {
		return ""
	}
	return f.breaker.why(f.engine.now())
}

// admitted reports whether a message gets through the breaker. The lock is
// held.
func (f *fuse[T]) admitted(x T) bool {
	if f.breaker == nil {
		return true
	}
	if !f.breaker.admit(x) {
		return false
	}
	if f.breaker.state != breakClosed {
		f.called = false
		f.pace()
	}
	return true
}

// try lets one message through when it is time to.
func (f *fuse[T]) try(now time.Time) {
	f.lock.Lock()
	var next []T
	if b := f.breaker; b != nil && b.ready(now) && !f.called {
		if len(f.parked) > 0 {
			next, f.parked, f.called = f.parked[:1:1], f.parked[1:], true
		}
		f.pace() // with nothing parked, one is pulled
	}
	f.lock.Unlock()
	for _, x := range next {
		f.resume(x)
	}
}

// tell counts the end of a call. spare is how long the message is put off,
// uncharged, instead of a dead letter: it failed with the many, and the plugin
// is to blame. The trial has no such excuse, else one bad message could hold
// the pipeline for ever.
func (f *fuse[T]) tell(b *breaker, x T, w *walk, v verdict) (spare time.Duration) {
	failure := ""
	if instanceFailed(w.out) {
		failure = w.text
	}
	now := f.engine.now()
	f.lock.Lock()
	trial := b.trial == any(x)
	did := b.result(x, failure, now)
	if failure != "" && v.action == actDead && b.state != breakClosed && !trial {
		spare = max(b.until.Sub(now), breakFirst)
	}
	why := b.why(now)
	var parked []T
	if f.breaker == b && did != unchanged {
		if did == closed {
			parked, f.parked = f.parked, nil
		}
		f.pace()
	}
	f.lock.Unlock()
	switch did { //nolint:exhaustive // nothing else asks for anything
	case opened:
		f.engine.log.Error("paused: " + why)
	case stayed:
		f.engine.log.Warn("still paused: " + why)
	case closed:
		f.engine.log.Info("no longer paused: a message went through")
	}
	if spare > 0 {
		f.engine.log.Warn(w.describe(v.reason)+"; not counted, the pipeline is paused", "step", w.step.name)
	}
	for _, x := range parked {
		f.resume(x)
	}
	return spare
}

// withdraw tells the breaker that an admitted message was not handled.
func (f *fuse[T]) withdraw(b *breaker, x T) {
	f.lock.Lock()
	defer f.lock.Unlock()
	b.withdraw(x)
}

// renewBreaker forgets what was known of the plugins before. The lock is held;
// the messages returned have to be queued.
func (f *fuse[T]) renewBreaker(c *config.Pipeline) []T {
	parked := f.parked
	f.breaker, f.parked, f.called = newBreaker(c), nil, false
	f.pace()
	return parked
}
