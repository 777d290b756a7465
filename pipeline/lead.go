package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// mind keeps an ordered pipeline in one process: whoever has the lease pulls,
// the others stand by.
func (p *pipeline) mind(ctx context.Context) {
	p.mu.Lock()
	active, giving, busy, leaving, lost := p.active, p.giving, p.inFlight > 0, p.leaving, p.broken
	p.mu.Unlock()
	switch {
	case giving && !leaving:
		p.handOver(ctx, busy)
		return
	case active && lost != nil:
		p.stepDown(lost)
		return
	case active:
		err := p.lease.renew(ctx)
		if errors.Is(err, errLeaseLost) || !p.lease.held(p.now()) && ctx.Err() == nil {
			p.stepDown(err)
		} else if p.part != nil && !leaving && p.part.shares.surplus(p.part.n) {
			p.giveUp()
		}
		return
	case leaving || busy: // what was begun under the last lease must end first
		return
	}
	ok, holder, err := p.mayLead(ctx)
	if err == nil && ok {
		ok, holder, err = p.lease.acquire(ctx)
	}
	if err == nil && ok {
		if err = p.takeOver(ctx); err != nil {
			err = errors.Join(err, p.lease.release(ctx))
		}
	}
	if p.part != nil && (err != nil || !ok) {
		p.part.shares.drop(p.part.n)
	}
	p.mu.Lock()
	p.holder = holder
	known := p.standbyErr != nil
	p.standbyErr = err
	p.mu.Unlock()
	if err != nil && !known && ctx.Err() == nil {
		p.log.Warn("cannot take over, trying again", "error", err)
	}
}

// takeOver begins to pull. What other processes had in work comes first.
func (p *pipeline) takeOver(ctx context.Context) error {
	infos := make([]*jetstream.ConsumerInfo, len(p.sources))
	for i, src := range p.sources {
		// The one before may have recorded failures since we looked, and the
		// consumer may be gone.
		info, err := p.restore(ctx, src)
		if err != nil {
			return err
		}
		infos[i] = info
		if err := src.pull.Resume(); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving {
		return nil
	}
	p.lanes.open()
	p.active, p.releasing, p.broken = true, false, nil
	clear(p.lost)
	for i, src := range p.sources {
		p.regain(src, infos[i], p.share())
	}
	p.throttle()
	return nil
}

// mayLead reports whether this process may try to take the pipeline: of one with
// partitions only its share, and none before what was stored before the split is
// settled.
func (p *pipeline) mayLead(ctx context.Context) (ok bool, holder string, err error) {
	if p.part == nil {
		return true, "", nil
	}
	if ok, holder = p.part.shares.claim(p.part.n); !ok {
		return false, holder, nil
	}
	ok, err = p.part.ready(ctx)
	return ok, "", err
}

// giveUp begins to give a part to a process that has fewer: nothing more is
// begun, and what runs may end.
func (p *pipeline) giveUp() {
	p.mu.Lock()
	p.active, p.giving = false, true
	clear(p.lost)
	p.mu.Unlock()
	p.log.Info("giving a part to another process", "part", p.part.n)
	p.rest()
}

// handOver keeps the lease until all that runs has ended.
func (p *pipeline) handOver(ctx context.Context, busy bool) {
	var err error
	if busy {
		if err = p.lease.renew(ctx); !errors.Is(err, errLeaseLost) && p.lease.held(p.now()) {
			return
		}
	} else if err = p.lease.release(ctx); err != nil {
		p.log.Warn("others take over when it has expired", "error", err)
	}
	p.mu.Lock()
	p.giving = false
	p.mu.Unlock()
	p.part.shares.drop(p.part.n)
}

// fenced reports whether another process may run the pipeline by now. Nothing
// is published then, not even what is in work: it would come after what the
// other one publishes, or, once the duplicate window has passed, twice.
func (p *pipeline) fenced(now time.Time) bool { return p.lease != nil && !p.lease.held(now) }

// forsake frees a slot without a word to the server: who runs the pipeline now
// gets the message again, and gives its outputs the same ids. s.mu is held.
func (p *pipeline) forsake(s *slot) {
	if next := p.lanes.pop(s); next != nil {
		p.queue <- next
	}
	s.state, s.final, s.judged, s.sent = settling, nil, false, p.now()
	epoch := s.epoch
	time.AfterFunc(0, func() { p.abandon(s, epoch) })
}

// stepDown stops pulling and gives back what no handler has begun.
func (p *pipeline) stepDown(why error) {
	p.mu.Lock()
	p.active = false
	clear(p.lost)
	p.mu.Unlock()
	p.log.Warn("standing by", "error", why)
	if p.part != nil {
		p.part.shares.drop(p.part.n)
	}
	p.rest()
}

// rest stops pulling and gives back what no handler has begun.
func (p *pipeline) rest() {
	p.letGo()
	for _, src := range p.sources {
		if err := src.pull.Suspend(); err != nil {
			p.log.Warn("stop pulling", "stream", src.stream, "error", err)
		}
	}
}
