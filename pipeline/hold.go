package pipeline

import (
	"fmt"
	"time"

	"github.com/mqrun/mqrun/config"
)

// hold keeps a message of an ordered pipeline in its slot, at the head of its
// line, until s.due: a nak would let those behind it overtake. The server hears
// that it is still in work. s.mu is held.
func (p *pipeline) hold(s *slot) {
	p.count(s)
	for _, r := range s.results {
		p.results.Put(r)
	}
	staged := s.bytes - int64(len(s.msg.Data))
	c := s.chain
	s.rewind()
	s.state, s.armed, s.bytes = delayed, false, s.bytes-staged
	if c != nil {
		c.leave() // the next attempt is made with what runs then
	}
	kept := p.lanes.hold(s, s.due)
	p.mu.Lock()
	p.bytes -= staged
	p.throttle()
	p.mu.Unlock()
	if !kept {
		p.giveBackLocked(s, minDelay)
		return
	}
	p.arm(s, p.now())
}

// arm sets a timer for a message that is due before the keeper comes again, so
// that few timers are needed and all are exact. s.mu is held.
func (p *pipeline) arm(s *slot, now time.Time) {
	left := s.due.Sub(now)
	if s.armed || left > tickEvery {
		return
	}
	s.armed = true
	epoch := s.epoch
	time.AfterFunc(left, func() { p.wake(s, epoch) })
}

// wake hands a held message to a worker.
func (p *pipeline) wake(s *slot, epoch uint32) {
	s.mu.Lock()
	if s.state != delayed || s.epoch != epoch || !p.lanes.wake(s) {
		s.mu.Unlock()
		return
	}
	s.state, s.due = waiting, time.Time{}
	s.mu.Unlock()
	p.mu.Lock()
	p.throttle()
	p.mu.Unlock()
	p.queue <- s
}

// postpone puts off a message that no handler judged: no attempt is counted.
func (p *pipeline) postpone(s *slot, delay time.Duration) {
	if p.lanes == nil {
		p.giveBack(s, delay)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = p.now().Add(delay)
	p.hold(s)
}

// crowded reports whether so much waits behind held keys that nothing more is
// pulled: half of what may be in flight is left for the others.
func (p *pipeline) crowded() bool {
	return p.lanes != nil && p.lanes.behind() > p.most()/2
}

// queueUp lets a message stand in line, and hands it to a worker when it is
// the first.
func (p *pipeline) queueUp(s *slot) {
	if p.lanes == nil || p.lanes.push(s) {
		p.queue <- s
	}
}

// heldWhy says which key holds the pipeline up.
func (p *pipeline) heldWhy(now time.Time) string {
	n, key, due := p.lanes.waiting()
	line := "the oldest message"
	if p.chain.cfg.Order != config.OrderStrict {
		line = fmt.Sprintf("key %q", key)
	}
	return fmt.Sprintf("%d messages wait behind failed ones: %s is tried again in %v", n, line, max(0, due.Sub(now)).Round(time.Second))
}
