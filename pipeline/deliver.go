package pipeline

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/mq"
)

// deliver puts a message into a slot and queues it up.
func (p *pipeline) deliver(src *source, m *nats.Msg) {
	info, err := mq.ParseAck(m.Reply)
	if err != nil {
		p.log.Error("delivery ignored", "error", err)
		src.pull.Credit(1)
		return
	}
	again := p.track(src, info)
	ident, before, settled := p.meet(src, info.Sequence)
	if settled {
		p.skip(src, m)
		return
	}
	if (again || before) && p.stillAtWork(src, m, info) {
		src.pull.Credit(1)
		return
	}
	s := p.slots.take()
	s.mu.Lock()
	s.state, s.src, s.ident, s.msg, s.reply, s.info = waiting, src, ident, m, m.Reply, info
	s.known = before
	s.subject = src.original(m)
	s.clock = p.now()
	s.bytes = int64(len(m.Data))
	bytes := s.bytes
	s.mu.Unlock()
	p.mu.Lock()
	if !src.mending {
		delete(p.lost, src.stream)
	}
	p.inFlight++
	src.busy++
	p.bytes += bytes
	release := p.releasing
	ready := []*slot{s}
	if src.back != nil && !release {
		ready = p.gather(src, s, info)
	}
	p.throttle()
	p.mu.Unlock()
	if release {
		p.release(s)
		return
	}
	for _, s := range ready {
		p.queueUp(s)
	}
}

// stillAtWork reports whether a redelivered message is in a slot already: the
// process stood still for longer than ack_wait. The work goes on, under the
// new delivery.
func (p *pipeline) stillAtWork(src *source, m *nats.Msg, info mq.AckInfo) bool {
	s := p.slots.holding(src, info.Sequence)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == free || s.src != src || s.info.Sequence != info.Sequence {
		return false // settled meanwhile
	}
	s.reply, s.clock = m.Reply, p.now()
	s.sent = time.Time{} // what was sent went to the delivery before
	if s.state == settling {
		// So does the answer to it. A nak with a short delay brings the message
		// back before its own confirmation is read: that must not end the slot, or
		// nobody has the new delivery until ack_wait is over.
		s.term++
	}
	return true
}

// throttle pauses the pulls while a publish is refused, too many bytes are in
// flight or too much waits behind held keys, and lets them go on after. p.mu is
// held.
func (p *pipeline) throttle() {
	hold := p.stuck > 0 || p.bytes > p.mostBytes()/2 || p.crowded() || p.shut()
	for _, src := range p.sources {
		src.pull.Pause(hold || src.recovering())
	}
}
