package pipeline

import "time"

// tickEvery is how often the keeper looks at all slots.
const tickEvery = 100 * time.Millisecond

// tick does for every slot what is due: tells the server that a message is
// still in work, repeats publishes and final words without an answer.
func (p *pipeline) tick(now time.Time, scratch []*slot) []*slot {
	for i, src := range p.sources {
		if p.lanes != nil {
			p.await(src, now)
		}
		src.pull.Tick(now)
		p.look(i, src, now)
	}
	p.try(now)
	scratch = p.slots.busy(scratch[:0])
	for _, s := range scratch {
		s.mu.Lock()
		p.keep(s, now)
		s.mu.Unlock()
	}
	return scratch
}

// keep looks after one slot. s.mu is held.
func (p *pipeline) keep(s *slot, now time.Time) {
	fenced := p.fenced(now)
	switch s.state { //nolint:exhaustive // nothing else asks for anything
	case free:
		return
	case settling:
		if now.Sub(s.sent) >= confirmWait {
			p.finish(s, now)
		}
		return
	case delayed:
		p.arm(s, now)
	case publishing:
		if fenced {
			p.forsake(s)
			return
		}
		for k := range s.pubs {
			pub := &s.pubs[k]
			switch {
			case pub.ok:
			case pub.sent.IsZero() && !now.Before(pub.due), !pub.sent.IsZero() && now.Sub(pub.sent) >= pubAckWait:
				p.send(s, k, now)
			}
		}
	}
	// One extension that fails must not be the last one: the clock is only
	// moved when it was sent.
	if now.Sub(s.clock) >= p.ackWait(s)/3 && !fenced && !s.ident.gone.Load() && p.broker.out.Publish(s.reply, progressBody) == nil {
		s.clock = now
	}
}
