package pipeline

import (
	"time"

	"github.com/mqrun/mqrun/config"
)

func newBreaker(c *config.Pipeline) *breaker {
	if !c.Breaker.On {
		return nil
	}
	return &breaker{cfg: c.Breaker}
}

// shut reports whether the breaker lets nothing through that is not in a slot
// already. p.mu is held.
func (p *pipeline) shut() bool {
	b := p.breaker
	return b != nil && (b.state == breakOpen || b.state == breakHalf && (b.trial != nil || p.called || len(p.parked) > 0))
}

// admitted reports whether a message gets through the breaker. p.mu is held.
func (p *pipeline) admitted(s *slot) bool {
	if p.breaker == nil {
		return true
	}
	if !p.breaker.admit(s) {
		return false
	}
	if p.breaker.state != breakClosed {
		p.called = false
		p.throttle()
	}
	return true
}

// try lets one message through when it is time to.
func (p *pipeline) try(now time.Time) {
	p.mu.Lock()
	var s *slot
	if b := p.breaker; b != nil && b.ready(now) && !p.called {
		if len(p.parked) > 0 {
			s, p.parked, p.called = p.parked[0], p.parked[1:], true
		}
		p.throttle() // with nothing parked, one is pulled
	}
	p.mu.Unlock()
	if s != nil {
		p.queue <- s
	}
}

// tell counts the end of a call. spare is how long the message is put off,
// uncharged, instead of a dead letter: it failed with the many, and the plugin
// is to blame. The trial has no such excuse, else one bad message could hold
// the pipeline for ever.
func (p *pipeline) tell(b *breaker, s *slot, w *walk, v verdict) (spare time.Duration) {
	failure := ""
	if instanceFailed(w.out) {
		failure = w.text
	}
	now := p.now()
	p.mu.Lock()
	trial := b.trial == any(s)
	did := b.result(s, failure, now)
	if failure != "" && v.action == actDead && b.state != breakClosed && !trial {
		spare = max(b.until.Sub(now), breakFirst)
	}
	why := b.why(now)
	var parked []*slot
	if p.breaker == b && did != unchanged {
		if did == closed {
			parked, p.parked = p.parked, nil
		}
		p.throttle()
	}
	p.mu.Unlock()
	switch did { //nolint:exhaustive // nothing else asks for anything
	case opened:
		p.log.Error("paused: " + why)
	case stayed:
		p.log.Warn("still paused: " + why)
	case closed:
		p.log.Info("no longer paused: a message went through")
	}
	for _, s := range parked {
		p.queue <- s
	}
	return spare
}

// withdraw tells the breaker that an admitted message was not handled.
func (p *pipeline) withdraw(b *breaker, s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.withdraw(s)
}

// renewBreaker forgets what was known of the plugins before. p.mu is held; the
// messages returned have to be queued.
func (p *pipeline) renewBreaker() []*slot {
	parked := p.parked
	p.breaker, p.parked, p.called = newBreaker(p.chain.cfg), nil, false
	p.throttle()
	return parked
}
