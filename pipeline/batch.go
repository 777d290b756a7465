package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mqrun/mqrun/mq"
)

// batch is a pipeline with `commit: batch`. One process runs it, whoever has the
// lease; the others stand by. The lease only saves work: what keeps a second
// one from committing is the checkpoint, so a process goes on while it cannot
// ask for its lease, until it is known to be somebody else's.
type batch struct {
	*walker
	in    input
	out   string
	lease *lease

	leading sync.WaitGroup
	retire  context.CancelFunc // ends leading
	nudged  chan struct{}
	counts  counts

	mu      sync.Mutex
	chain   *chain
	tenure  *tenure // nil: another process runs it, or it cannot run
	leaving bool    // drain has begun
	holder  string  // who has the lease
	err     error   // why there is no tenure
}

// openBatch finds the checkpoint, or writes the first one; begin takes turns
// with other processes.
func openBatch(ctx context.Context, b *broker, c *chain, in input, out string, log *slog.Logger) (*batch, error) {
	p := &batch{walker: newWalker(c.cfg, b, log), in: in, out: out, chain: c, nudged: make(chan struct{}, 1), retire: func() {}}
	kv, err := b.leases(ctx)
	if err == nil {
		p.lease = b.lease(kv, p.key)
		_, err = openCheckpoint(ctx, b.js, b.state, c.cfg, in, out)
	}
	if err != nil {
		c.retire()
		return nil, fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	return p, nil
}

func (p *batch) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	p.retire = cancel
	p.leading.Go(func() { p.lease.keep(ctx, p.log, p.nudged, p.mind) })
}

// wake makes the leader look at once.
func (p *batch) wake() {
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// current is the tenure, nil for none.
func (p *batch) current() *tenure {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenure
}

// mind does what is due for the lease and the tenure.
func (p *batch) mind(ctx context.Context) {
	t := p.current()
	if t != nil {
		why := t.failed()
		if why == nil {
			why = p.renew(ctx)
		}
		if why == nil {
			return
		}
		p.log.Warn("standing by", "error", why)
		p.mu.Lock()
		p.tenure = nil
		p.mu.Unlock()
		t.close()
	}
	ok, holder, err := p.lease.acquire(ctx)
	if err == nil && ok {
		if err = p.takeOver(ctx); err != nil {
			err = errors.Join(err, p.lease.release(ctx))
		}
	}
	p.mu.Lock()
	known := p.err != nil && err != nil && p.err.Error() == err.Error()
	p.holder, p.err = holder, err
	p.mu.Unlock()
	if err != nil && !known && ctx.Err() == nil {
		p.log.Error("cannot take over, trying again", "error", err)
	}
}

// renew keeps the lease alive. An error says who else has it.
func (p *batch) renew(ctx context.Context) error {
	err := p.lease.renew(ctx)
	if err == nil || !errors.Is(err, errLeaseLost) && p.lease.held(p.now()) {
		return nil
	}
	// Expired, and perhaps nobody's.
	if ok, holder, err := p.lease.acquire(ctx); err == nil && !ok && holder != "" {
		return fmt.Errorf("%s has taken the lease", holder)
	}
	return nil
}

// takeOver begins where the checkpoint is.
func (p *batch) takeOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	p.mu.Lock()
	c, leaving := p.chain, p.leaving
	p.mu.Unlock()
	if leaving {
		return nil
	}
	var t *tenure
	if err := p.broker.steady(func() (err error) {
		t, err = openTenure(ctx, p, c)
		return err
	}); err != nil {
		return err
	}
	p.mu.Lock()
	if p.leaving {
		p.mu.Unlock()
		t.close()
		return nil
	}
	p.tenure = t
	if p.chain != c { // swapped meanwhile
		t.swap(p.chain)
	}
	p.mu.Unlock()
	t.begin()
	return nil
}

func (p *batch) tick(now time.Time, scratch []*slot) []*slot {
	if t := p.current(); t != nil {
		t.tick(now)
	}
	return scratch
}

func (p *batch) reconnected() {
	if t := p.current(); t != nil {
		t.reconnected()
	}
}

func (p *batch) violated(v mq.Violation) {
	if t := p.current(); t != nil {
		t.violated(v)
	}
}

func (p *batch) swap(c *chain) *chain {
	p.mu.Lock()
	old := p.chain
	p.chain = c
	if p.tenure != nil {
		p.tenure.swap(c)
	}
	p.mu.Unlock()
	old.retire()
	return old
}

// drain ends the tenure, and gives up the lease only then.
func (p *batch) drain(ctx context.Context, patience time.Duration) (err error) {
	p.mu.Lock()
	p.leaving = true
	t := p.tenure
	p.mu.Unlock()
	if t != nil {
		err = t.drain(ctx, patience)
	}
	p.close()
	return err
}

func (p *batch) close() {
	p.mu.Lock()
	p.leaving = true
	p.mu.Unlock()
	p.retire()
	p.leading.Wait()
	if t := p.current(); t != nil {
		t.close()
	}
	p.chain.retire()
}

func (p *batch) status() Status {
	s := statusOf(p.walker, &p.counts)
	p.mu.Lock()
	t, holder, err := p.tenure, p.holder, p.err
	p.mu.Unlock()
	switch {
	case t != nil:
		t.report(&s)
	case err != nil:
		s.State, s.Why = StateLost, err.Error()
	default:
		s.State = StateStandby
		if holder != "" {
			s.Why = "runs in " + holder
		}
	}
	return s
}
