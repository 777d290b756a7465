package pipeline

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// tenure is the time in which this process runs a pipeline with `commit:
// batch`, and all that it has in work. Messages are handled in parallel; their
// results are committed in stream order, many at a time, by atomic batches that
// hold the outputs, the parked retries and the checkpoint. There is no durable:
// the checkpoint is the position. What a tenure leaves undone is behind it.
type tenure struct {
	*walker
	crew[*entry]
	fuse[*entry]
	counts *counts
	in     input
	src    *source
	out    string // stream of the outputs and the checkpoint
	parkAt string
	window int // messages admitted at once

	entries   sync.Pool
	work      context.Context //nolint:containedctx // ends with the tenure, to stop its guests
	abort     context.CancelFunc
	committer *committer
	attempts  attempts      // of crashes alone: other failures are in the parked copies
	gone      chan struct{} // closed when it cannot go on
	wake      func()        // tells its owner that
	closing   sync.Once

	mu         sync.Mutex
	chain      *chain
	pull       *mq.Pull
	consumer   string
	expect     uint64 // consumer sequence of the next delivery
	top        uint64 // stream sequence of the last one admitted
	line       []*entry
	again      []*entry // parked messages whose next attempt has ended
	waiting    parking
	inFlight   int
	revived    int // of them, parked ones
	trying     int // of those, in a handler
	bytes      int64
	draining   bool
	releasing  bool
	restarting bool
	lost       string
	over       error // why it cannot go on
}

// entry is one message in the line.
type entry struct {
	slot
	begun  bool
	held   bool // it waits for the breaker, or for the host
	behind bool // a drain has left it behind
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
	e.begun, e.held, e.behind, e.ended, e.parked, e.failed = false, false, false, false, false, 0
	e.v, e.outs, e.due = verdict{}, nil, time.Time{}
}

// openTenure takes over where the checkpoint is; begin pulls.
func openTenure(ctx context.Context, b *batch, c *chain) (*tenure, error) {
	p := &tenure{
		walker: b.walker, counts: &b.counts, in: b.in, out: b.out, chain: c, wake: b.wake,
		parkAt: parkSubject(b.out, b.key), window: 4 * c.cfg.MaxInFlight,
		entries: sync.Pool{New: func() any { return new(entry) }}, gone: make(chan struct{}),
	}
	p.crew = crew[*entry]{queue: make(chan *entry, 8*c.cfg.MaxInFlight), quit: make(chan struct{}), do: p.handle}
	p.fuse = fuse[*entry]{breaker: newBreaker(c.cfg), engine: p.walker, lock: &p.mu, pace: p.throttle, resume: p.enqueue}
	p.attempts = attempts{kv: b.broker.attempts, known: map[string]failures{}}
	p.work, p.abort = context.WithCancel(context.Background())
	if err := p.open(ctx); err != nil {
		p.close()
		return nil, err
	}
	p.staff(c.cfg.Workers)
	return p, nil
}

func (p *tenure) open(ctx context.Context) error {
	st, err := p.broker.js.Stream(ctx, p.in.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		p.broker.missing()
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", p.in.stream, err)
	}
	p.in.created = st.CachedInfo().Created
	p.src = &source{stream: p.in.stream, ident: newIdentity(p.key, p.in.stream, p.in.created), redo: p.in.redo}
	ckpt, err := openCheckpoint(ctx, p.broker.js, p.broker.state, p.chain.cfg, p.in, p.out)
	if err != nil {
		return err
	}
	// A durable of `commit: each` has told its position; left there it would
	// hold the janitor for ever.
	if err := p.broker.js.DeleteConsumer(ctx, p.in.stream, durable(p.key)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	if p.waiting, err = readParked(ctx, p.broker.js, p.out, p.parkAt, ckpt); err != nil {
		return err
	}
	if err := p.attempts.load(ctx, p.src.ident, 0); err != nil {
		return err
	}
	p.top = ckpt.Sequence
	if p.committer, err = newCommitter(p, ckpt); err != nil {
		return err
	}
	return p.consume(ctx)
}

func (p *tenure) begin() {
	p.committer.start()
	p.mu.Lock()
	pull, n := p.pull, p.window-p.inFlight
	p.mu.Unlock()
	pull.Credit(n)
}

// take pops the next result that may be committed: of parked messages in any
// order, of the input in the stream's.
func (p *tenure) take(fits func(*entry) bool) *entry {
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
func (p *tenure) more() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.line) > 0 || len(p.again) > 0 || p.trying > 0
}

// committed lets go of messages whose results are stored.
func (p *tenure) committed(es []*entry) {
	n := 0
	p.mu.Lock()
	for _, e := range es {
		for _, r := range e.results {
			p.results.Put(r)
		}
		p.inFlight--
		p.bytes -= e.bytes
		if e.parked {
			p.revived--
		} else {
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

// tick looks after the pull and the breaker, and brings back what is due.
func (p *tenure) tick(now time.Time) {
	p.mu.Lock()
	pull := p.pull
	var due []parked
	for !p.draining && !p.shut() && len(p.waiting) > 0 && !p.waiting[0].due.After(now) && p.revived < p.window/4 {
		due = append(due, heap.Pop(&p.waiting).(parked))
		p.revived++
	}
	p.inFlight += len(due)
	p.mu.Unlock()
	pull.Tick(now)
	if len(due) > 0 {
		p.workers.Go(func() { p.revive(due) })
	}
	p.try(now)
}

func (p *tenure) reconnected() {
	p.mu.Lock()
	pull := p.pull
	p.mu.Unlock()
	// What was on its way is lost, and a new pull would go on behind it.
	p.restart(pull, errors.New("the connection was cut"))
	p.committer.nudge()
}

// swap changes what further messages are handled with. What has begun ends as
// it began, and commits with the rest.
func (p *tenure) swap(c *chain) {
	p.mu.Lock()
	p.chain = c
	parked := p.renewBreaker(c.cfg)
	p.mu.Unlock()
	p.staff(c.cfg.Workers)
	for _, e := range parked {
		p.enqueue(e)
	}
}

// drain handles and commits what was admitted; after patience, only what has
// begun and has nothing unbegun before it. The rest is behind the checkpoint.
func (p *tenure) drain(ctx context.Context, patience time.Duration) error {
	p.mu.Lock()
	p.draining = true
	pull := p.pull
	p.mu.Unlock()
	if err := pull.Stop(); err != nil {
		p.log.Warn("stop pulling", "stream", p.in.stream, "error", err)
	}
	p.mu.Lock()
	if patience <= 0 || p.shut() {
		p.cut()
	}
	p.mu.Unlock()
	defer time.AfterFunc(patience, func() {
		p.mu.Lock()
		p.cut()
		p.mu.Unlock()
		p.committer.nudge()
	}).Stop()
	var err error
	if !p.committer.drain(ctx) {
		p.mu.Lock()
		err = fmt.Errorf("drain pipeline %s: %d messages were not done in time; they are behind the checkpoint", p.name, len(p.line))
		p.mu.Unlock()
	}
	p.close()
	return err
}

// cut drops what has not begun, and in the line all that is behind it. What a
// worker has at this moment is as good as begun when something behind it is.
// p.mu is held.
func (p *tenure) cut() {
	p.releasing = true
	n := 0
	for i, e := range p.line {
		if e.held {
			break
		}
		if e.begun {
			n = i + 1
		}
	}
	for _, e := range p.line[n:] {
		e.behind = true
	}
	p.line = p.line[:n]
}

// dropped reports whether a message is not to begin any more. p.mu is held.
func (p *tenure) dropped(e *entry) bool { return e.behind || p.releasing && (e.parked || e.held) }

// fail ends the tenure: it cannot commit any more. What it has in work is for
// the next one, here or elsewhere.
func (p *tenure) fail(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return
	}
	p.over = why
	close(p.gone)
	p.throttle()
	p.wake()
}

// failed says why the tenure is over, nil when it is not.
func (p *tenure) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

func (p *tenure) close() {
	p.closing.Do(func() {
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
	})
}

// report puts into s how it goes.
func (p *tenure) report(s *Status) {
	why := p.committer.why()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.InFlight, s.Parked = p.inFlight, len(p.waiting)
	switch {
	case p.over != nil:
		s.State, s.Why = StateLost, p.over.Error()
	case p.lost != "":
		s.State, s.Why = StateLost, p.lost
	case why != "":
		s.State, s.Why = StateBlocked, why
	case p.tripped() != "":
		s.State, s.Why = StateBreaker, p.tripped()
	}
}
