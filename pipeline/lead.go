package pipeline

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// mind keeps an ordered pipeline in one process: whoever has the lease pulls,
// the others stand by.
func (p *pipeline) mind(ctx context.Context) {
	p.mu.Lock()
	active, rest, lost := p.active, p.leaving || p.inFlight > 0, p.broken
	p.mu.Unlock()
	switch {
	case active && lost != nil:
		p.stepDown(lost)
		return
	case active:
		err := p.lease.renew(ctx)
		if errors.Is(err, errLeaseLost) || !p.lease.held(p.now()) && ctx.Err() == nil {
			p.stepDown(err)
		}
		return
	case rest: // what was begun under the last lease must end first
		return
	}
	ok, holder, err := p.lease.acquire(ctx)
	if err == nil && ok {
		if err = p.takeOver(ctx); err != nil {
			err = errors.Join(err, p.lease.release(ctx))
		}
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

// stepDown stops pulling and gives back what no handler has begun.
func (p *pipeline) stepDown(why error) {
	p.mu.Lock()
	p.active = false
	clear(p.lost)
	p.mu.Unlock()
	p.log.Warn("standing by", "error", why)
	p.letGo()
	for _, src := range p.sources {
		if err := src.pull.Suspend(); err != nil {
			p.log.Warn("stop pulling", "stream", src.stream, "error", err)
		}
	}
}
