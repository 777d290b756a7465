package pipeline

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// batch is one running pipeline with `commit: batch`. Messages are handled in
// parallel; their results are committed in stream order, many at a time, by
// atomic batches that hold the outputs, the parked retries and the checkpoint.
// There is no durable: the checkpoint is the position.
type batch struct {
	*walker
	crew[*entry]
	in     input
	src    *source
	out    string // stream of the outputs and the checkpoint
	parkAt string
	window int // messages admitted at once

	entries   sync.Pool
	work      context.Context //nolint:containedctx // ends with the engine, to stop its guests
	abort     context.CancelFunc
	committer *committer
	attempts  attempts // of crashes alone: other failures are in the parked copies

	mu         sync.Mutex
	chain      *chain
	pull       *mq.Pull
	expect     uint64 // consumer sequence of the next delivery
	admitted   uint64 // stream sequence of the last one
	line       []*entry
	again      []*entry // parked messages whose next attempt has ended
	waiting    parking
	inFlight   int
	bytes      int64
	draining   bool
	releasing  bool
	restarting bool
	lost       string
	counts     counts
}

// entry is one message in the line.
type entry struct {
	slot
	begun  bool
	ended  bool // its result is there, and its dead letter stored
	parked bool // it comes from a parked copy, not from the input
	failed int  // attempts before, crashes not among them
	v      verdict
	outs   []output
	due    time.Time
}

// reset makes e ready for another message and keeps its memory.
func (e *entry) reset() {
	e.forget()
	e.begun, e.ended, e.parked, e.failed = false, false, false, 0
	e.v, e.outs, e.due = verdict{}, nil, time.Time{}
}

func openBatch(ctx context.Context, b *broker, c *chain, in input, out string, log *slog.Logger) (*batch, error) {
	p := &batch{
		walker: newWalker(c.cfg.Name, b, log), in: in, out: out, chain: c,
		src:     &source{stream: in.stream, ident: newIdentity(c.cfg.Name, in.stream, in.created), redo: in.redo},
		window:  4 * c.cfg.MaxInFlight,
		entries: sync.Pool{New: func() any { return new(entry) }},
	}
	p.crew = crew[*entry]{queue: make(chan *entry, 8*c.cfg.MaxInFlight), quit: make(chan struct{}), do: p.handle}
	p.attempts = attempts{kv: b.attempts, known: map[string]failures{}}
	p.work, p.abort = context.WithCancel(context.Background())
	p.parkAt = parkSubject(p.out, p.name, 0)
	if err := p.open(ctx); err != nil {
		p.close()
		return nil, fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	p.staff(c.cfg.Workers)
	return p, nil
}

func (p *batch) open(ctx context.Context) error {
	ckpt, err := openCheckpoint(ctx, p.broker.js, p.broker.state, p.chain.cfg, p.in, p.out)
	if err != nil {
		return err
	}
	// A durable of `commit: each` has told its position; left there it would
	// hold the janitor for ever.
	if err := p.broker.js.DeleteConsumer(ctx, p.in.stream, durable(p.name)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	if p.waiting, err = readParked(ctx, p.broker.js, p.out, p.parkAt); err != nil {
		return err
	}
	if err := p.attempts.load(ctx, p.src.ident, 0); err != nil {
		return err
	}
	p.admitted = ckpt.Sequence
	if p.committer, err = newCommitter(p, ckpt); err != nil {
		return err
	}
	return p.consume(ctx)
}

func (p *batch) begin() {
	p.committer.start()
	p.mu.Lock()
	pull, n := p.pull, p.window-p.inFlight
	p.mu.Unlock()
	pull.Credit(n)
}

// take pops the next result that may be committed: of parked messages in any
// order, of the input in the stream's.
func (p *batch) take(fits func(*entry) bool) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.again) > 0 && fits(p.again[0]):
		e := p.again[0]
		p.again = p.again[1:]
		return e
	case len(p.line) > 0 && p.line[0].ended && fits(p.line[0]):
		e := p.line[0]
		p.line[0] = nil
		p.line = p.line[1:]
		return e
	}
	return nil
}

// more reports whether further results are to come soon.
func (p *batch) more() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.line) > 0 || len(p.again) > 0
}

// committed lets go of messages whose results are stored.
func (p *batch) committed(es []*entry) {
	n := 0
	p.mu.Lock()
	for _, e := range es {
		for _, r := range e.results {
			p.results.Put(r)
		}
		p.inFlight--
		p.bytes -= e.bytes
		if !e.parked {
			n++
		}
		p.counts.outputs.Add(int64(len(e.outs)))
		if e.v.action == actNak {
			heap.Push(&p.waiting, parked{sequence: e.info.Sequence, due: e.due})
		}
		switch e.v.action {
		case actNak:
			p.counts.naked.Add(1)
		case actDead:
			p.counts.died(e.v.reason)
		default:
			p.counts.acked.Add(1)
			if e.v.filtered {
				p.counts.filtered.Add(1)
			}
		}
		e.reset()
		p.entries.Put(e)
	}
	pull := p.pull
	p.throttle()
	p.mu.Unlock()
	if n > 0 {
		pull.Credit(n)
	}
}

// tick looks after the pull, and brings back what is due.
func (p *batch) tick(now time.Time, scratch []*slot) []*slot {
	p.mu.Lock()
	pull := p.pull
	var due []parked
	for !p.draining && len(p.waiting) > 0 && !p.waiting[0].due.After(now) && len(due) < p.window/4 {
		due = append(due, heap.Pop(&p.waiting).(parked))
	}
	p.inFlight += len(due)
	p.mu.Unlock()
	pull.Tick(now)
	if len(due) > 0 {
		p.workers.Go(func() { p.revive(due) })
	}
	return scratch
}

func (p *batch) reconnected() {
	p.mu.Lock()
	pull := p.pull
	p.mu.Unlock()
	// What was on its way is lost, and a new pull would go on behind it.
	p.restart(pull, errors.New("the connection was cut"))
	p.committer.nudge()
}

func (p *batch) swap(c *chain) *chain {
	p.mu.Lock()
	old := p.chain
	p.chain = c
	p.mu.Unlock()
	old.retire()
	p.staff(c.cfg.Workers)
	return old
}

// drain handles and commits what was admitted; with release, only what has
// begun and has nothing unbegun before it. The rest is behind the checkpoint.
func (p *batch) drain(ctx context.Context, release bool) error {
	p.mu.Lock()
	p.draining, p.releasing = true, release
	pull := p.pull
	p.mu.Unlock()
	if err := pull.Stop(); err != nil {
		p.log.Warn("stop pulling", "stream", p.in.stream, "error", err)
	}
	if release {
		p.mu.Lock()
		for i, e := range p.line {
			if !e.begun {
				p.line = p.line[:i]
				break
			}
		}
		p.mu.Unlock()
	}
	var err error
	if !p.committer.drain(ctx) {
		p.mu.Lock()
		err = fmt.Errorf("drain pipeline %s: %d messages were not done in time; they are behind the checkpoint", p.name, len(p.line))
		p.mu.Unlock()
	}
	p.close()
	return err
}

func (p *batch) close() {
	p.abort()
	p.mu.Lock()
	p.draining = true
	pull := p.pull
	p.mu.Unlock()
	if pull != nil {
		_ = pull.Stop()
	}
	close(p.quit)
	if p.committer != nil {
		p.committer.stop()
	}
	p.workers.Wait()
	p.chain.retire()
}

func (p *batch) status() Status {
	s := statusOf(p.walker, &p.counts)
	p.mu.Lock()
	s.InFlight, s.Parked = p.inFlight, len(p.waiting)
	lost := p.lost
	p.mu.Unlock()
	switch why := p.committer.why(); {
	case lost != "":
		s.State, s.Why = StateLost, lost
	case why != "":
		s.State, s.Why = StateBlocked, why
	}
	return s
}
