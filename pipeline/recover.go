package pipeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

const (
	// recoverSlack is what the server may need beyond ack_wait until it gives a
	// message out again.
	recoverSlack = 250 * time.Millisecond
	// recoverFirst is longer than the delay of what a stop gives back: it is due
	// again then, and comes before new messages.
	recoverFirst = 3 * minDelay
	// recoverPatience is how long after that nothing is begun. Who does not come
	// by then was settled by somebody else, or waits for a delayed nak of a time
	// when the pipeline had no order.
	recoverPatience = 2 * time.Second
)

// recovery gathers the deliveries of one input of an ordered pipeline while
// others, which may come before them, are still out: given to a process that is
// gone, or lost with a connection. The server gives those out again before new
// ones, but sorts only what expires at the same time. So nothing begins before
// all are back, and then all begin in the stream's order.
type recovery struct {
	want  int       // redeliveries to come
	due   time.Time // by then the server has given up all of them
	asked bool      // that time has come
	first time.Time // when lend credits are lent, before that
	lend  int
	pause bool // nothing is pulled before
	later int  // credits to lend when it ends
	slots []*slot
}

// regain starts the input of an ordered pipeline at what the consumer says.
// credits are what the input may have in flight. p.mu is held.
func (p *pipeline) regain(src *source, info *jetstream.ConsumerInfo, credits int) {
	src.next, src.top, src.back = info.Delivered.Consumer+1, info.Delivered.Stream, nil
	out := info.NumAckPending
	if out == 0 {
		src.pull.Credit(credits)
		return
	}
	lend := min(out, 2*credits)
	now := p.now()
	src.back = &recovery{
		want: lend, due: now.Add(p.chain.cfg.AckWait + recoverSlack), later: credits - lend,
		first: now.Add(recoverFirst), lend: lend,
	}
	p.log.Info("waiting for what was given out before", "stream", src.stream, "messages", out, "at most", p.chain.cfg.AckWait)
}

// track follows the places of the deliveries of an ordered pipeline, and
// reports whether this one was here before.
func (p *pipeline) track(src *source, info mq.AckInfo) (again bool) {
	if p.lanes == nil {
		return info.Deliveries > 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if src.next > 0 && info.ConsumerSequence > src.next {
		missed := int(info.ConsumerSequence - src.next)
		if src.back == nil {
			src.back = &recovery{pause: true}
		}
		b := src.back
		b.want, b.due, b.asked = b.want+missed, p.now().Add(p.chain.cfg.AckWait+recoverSlack), false
		if !p.releasing {
			p.throttle()
			p.log.Warn("deliveries were lost with their connection; waiting until they come again", "stream", src.stream, "messages", missed, "at most", p.chain.cfg.AckWait)
		}
	}
	src.next = info.ConsumerSequence + 1
	again = info.Deliveries > 1 || info.Sequence <= src.top
	src.top = max(src.top, info.Sequence)
	return again
}

// gather adds a delivery to a recovery and returns what may stand in line now.
// p.mu is held.
func (p *pipeline) gather(src *source, s *slot, info mq.AckInfo) []*slot {
	b := src.back
	b.slots = append(b.slots, s)
	if info.Deliveries > 1 {
		b.want--
	}
	if b.want > 0 {
		return nil
	}
	return p.regained(src)
}

// regained ends a recovery. p.mu is held.
func (p *pipeline) regained(src *source) []*slot {
	b := src.back
	src.back = nil
	src.pull.Credit(b.lend + b.later)
	p.throttle()
	slices.SortStableFunc(b.slots, func(a, b *slot) int { return cmp.Compare(a.info.Sequence, b.info.Sequence) })
	return b.slots
}

// await does what is due for the recovery of an input.
func (p *pipeline) await(src *source, now time.Time) {
	var slots []*slot
	p.mu.Lock()
	b := src.back
	if b != nil && b.lend > 0 && !now.Before(b.first) {
		src.pull.Credit(b.lend)
		b.lend = 0
	}
	switch {
	case b == nil || now.Before(b.due):
	case !b.asked:
		// All are with the server now, and it gives them out before new ones.
		// What is in flight already must not keep them from coming.
		b.asked = true
		b.later -= b.want
		src.pull.Credit(b.want)
		p.throttle()
	case now.Sub(b.due) > recoverPatience:
		p.log.Info("going on without what did not come again: it was settled by another process, or is delayed", "stream", src.stream, "messages", b.want)
		slots = p.regained(src)
	}
	p.mu.Unlock()
	for _, s := range slots {
		p.queueUp(s)
	}
}

// recovering reports whether an input waits for a lost delivery, so that
// nothing new may be pulled. p.mu is held.
func (src *source) recovering() bool {
	return src.back != nil && src.back.pause && !src.back.asked
}
