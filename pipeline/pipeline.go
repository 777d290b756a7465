package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

// maxInFlightBytes bounds a pipeline's inputs and staged outputs together.
const maxInFlightBytes = 32 << 20

// flushWait bounds how long a round trip to the server may take at start.
const flushWait = 10 * time.Second

// walker is what every engine needs to take messages through their steps.
type walker struct {
	name    string
	key     string // under which the server knows it
	broker  *broker
	log     *slog.Logger
	now     func() time.Time
	rnd     func() float64
	results sync.Pool // of *host.Result
	gate    *gate
	seconds histogram
}

func newWalker(c *config.Pipeline, b *broker, log *slog.Logger) *walker {
	return &walker{
		name: c.Name, key: c.Key(), broker: b, log: log.With("pipeline", c.Name), now: time.Now, rnd: random,
		results: sync.Pool{New: func() any { return new(host.Result) }},
		gate:    newGate(),
	}
}

// pipeline is one running pipeline with `commit: each`: deliveries come in
// through its sources, wait in slots for a worker, walk the chain, and are
// settled one by one.
type pipeline struct {
	*walker
	crew[*slot]
	fuse[*slot]

	slots    *slots
	lanes    *lanes // nil: no order
	lease    *lease // of an ordered pipeline
	part     *part  // of one with partitions; nil: it is whole
	attempts attempts
	sources  []*source
	replies  *nats.Subscription
	inbox    string

	work  context.Context //nolint:containedctx // ends with the engine, to stop its guests
	abort context.CancelFunc

	mu        sync.Mutex
	chain     *chain
	inFlight  int
	bytes     int64
	stuck     int // slots with a publish that was refused
	why       string
	draining  bool
	releasing bool          // unstarted messages are given back
	empty     chan struct{} // closed when draining and nothing is in flight
	lost      map[string]string
	denied    map[string]time.Time // rights that are missing, and when the server last said so
	leaving   bool                 // drain has begun

	// Of an ordered pipeline:
	leading    sync.WaitGroup
	retire     context.CancelFunc // ends leading
	active     bool               // this process has the lease
	giving     bool               // it is given to another process once nothing is in flight
	broken     error              // why it has to be taken anew
	holder     string             // who has it
	standbyErr error              // why it could not be taken

	counts counts
}

// counts are of this process, since its start.
type counts struct {
	handled, acked, filtered, naked, dead, outputs, lateAcks, publishRefused atomic.Int64
	// skipped were settled under a consumer that is gone; mended is how often one
	// was made again, or an input changed.
	skipped, mended atomic.Int64
	deadBy          tally
}

// openPipeline makes the consumers and loads the attempts; begin pulls.
func openPipeline(ctx context.Context, b *broker, c *chain, inputs []input, pt *part, log *slog.Logger) (*pipeline, error) {
	p := newPipeline(b, c, pt, log)
	if err := p.open(ctx, inputs); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pipeline) begin() {
	if p.lanes != nil {
		ctx, cancel := context.WithCancel(context.Background())
		p.retire = cancel
		p.leading.Go(func() { p.lease.keep(ctx, p.log, nil, p.mind) })
		return
	}
	for _, src := range p.sources {
		src.pull.Credit(p.share())
	}
}

// share is what each input may have in flight.
func (p *pipeline) share() int { return max(1, p.most()/len(p.sources)) }

// most is how much may be in flight: a part has its part of that.
func (p *pipeline) most() int {
	if p.part == nil {
		return p.chain.cfg.MaxInFlight
	}
	return (p.chain.cfg.MaxInFlight + p.part.of - 1) / p.part.of
}

// mostBytes is the same for bytes.
func (p *pipeline) mostBytes() int64 {
	if p.part == nil {
		return maxInFlightBytes
	}
	return int64(maxInFlightBytes / p.part.of)
}

func newPipeline(b *broker, c *chain, pt *part, log *slog.Logger) *pipeline {
	p := &pipeline{
		walker: newWalker(c.cfg, b, log),
		slots:  &slots{}, chain: c, part: pt,
		empty: make(chan struct{}),
		lost:  map[string]string{}, denied: map[string]time.Time{},
	}
	p.crew = crew[*slot]{queue: make(chan *slot, 4*c.cfg.MaxInFlight), quit: make(chan struct{}), do: p.handle}
	p.fuse = fuse[*slot]{breaker: newBreaker(c.cfg), engine: p.walker, lock: &p.mu, pace: p.throttle, resume: p.enqueue}
	if key := keyOf(c.cfg.Order); key != nil {
		p.lanes, p.retire = newLanes(key), func() {}
	}
	p.attempts = attempts{kv: b.attempts, known: map[string]failures{}}
	p.work, p.abort = context.WithCancel(context.Background())
	p.staff(c.cfg.Workers)
	return p
}

func (p *pipeline) open(ctx context.Context, inputs []input) error {
	p.inbox = nats.NewInbox()
	var err error
	if p.lanes != nil {
		kv, err := p.broker.leases(ctx)
		if err != nil {
			return fmt.Errorf("pipeline %s: %w", p.name, err)
		}
		key := p.key
		if p.part != nil {
			key = partKey(p.key, p.part.of, p.part.n)
		}
		p.lease = p.broker.lease(kv, key)
	}
	if p.replies, err = p.broker.out.Subscribe(p.inbox+".*.*.*", p.reply); err != nil {
		return fmt.Errorf("pipeline %s: subscribe to replies: %w", p.name, err)
	}
	if err := p.replies.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	for _, in := range inputs {
		if err := p.addSource(ctx, in); err != nil {
			return fmt.Errorf("pipeline %s: %w", p.name, err)
		}
	}
	// The replies' interest must be known before the first request.
	flush, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	return p.broker.out.FlushWithContext(flush)
}

func (p *pipeline) addSource(ctx context.Context, in input) error {
	src := &source{stream: in.stream, filters: in.filters, redo: in.redo, consumer: durable(p.key), ident: newIdentity(p.key, in.stream, in.created)}
	if p.part != nil {
		src.consumer = partDurable(p.key, p.part.of, p.part.n)
	} else if in.split {
		if err := p.neverSplit(ctx, in.stream); err != nil {
			return err
		}
	}
	info, err := p.restore(ctx, src)
	if err != nil {
		return err
	}
	src.pull, err = mq.NewPull(p.broker.in, mq.PullConfig{
		Stream: in.stream, Consumer: info.Name,
		Batch:    max(1, p.most()/4),
		MaxBytes: max(p.mostBytes()/4, 2*in.maxMsg),
		Deliver:  func(m *nats.Msg) { p.deliver(src, m) },
		Lost:     func(err error) { p.sourceLost(src, err) },
	})
	if err != nil {
		return err
	}
	p.sources = append(p.sources, src)
	return nil
}

// handle takes one message from waiting to its settlement.
func (p *pipeline) handle(s *slot) {
	again := s.info.Deliveries > 1 || s.before.Failed > 0
	p.mu.Lock()
	b, release, c := p.breaker, p.releasing, p.chain.pick(s.info.Sequence, again)
	if !release && !p.admitted(s) {
		if !p.leaving {
			p.parked = append(p.parked, s)
			p.mu.Unlock()
			return
		}
		release = true
	}
	for !release && !c.enter() { // swapped at this very moment
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
		release, c = p.releasing, p.chain.pick(s.info.Sequence, again)
	}
	p.mu.Unlock()
	if release {
		p.release(s)
		return
	}
	judged := b == nil
	defer func() {
		if !judged {
			p.withdraw(b, s)
		}
	}()
	if p.lease != nil && !p.lease.held(p.now()) {
		c.leave()
		p.postpone(s, tickEvery) // it is kept, or all goes back
		return
	}
	before, err := p.past(s)
	if err != nil {
		c.leave()
		p.log.Warn("attempts unknown, message put off", "stream", s.src.stream, "sequence", s.info.Sequence, "error", err)
		p.postpone(s, time.Second)
		return
	}
	if p.lanes != nil && before.Due.After(p.now()) {
		c.leave()
		s.before = before
		p.postpone(s, min(before.Due.Sub(p.now()), maxDelay))
		return
	}
	s.mu.Lock()
	s.state, s.chain, s.attempt = running, c, before.Failed+1
	s.mu.Unlock()
	w := &s.walk
	w.pipe, w.s, w.before = p.walker, s, before
	// The bound was lowered meanwhile, a crash came before the dead letter, or
	// the message is what crashes.
	if exhausted := before.Failed >= c.cfg.Retry.Attempts; exhausted || before.Crashes >= crashesDead {
		w.step = &c.steps[min(before.Step, len(c.steps)-1)]
		w.out.failure, w.text = before.Reason, before.Error
		s.attempt = before.Failed
		p.settle(s, w, verdict{action: actDead, reason: before.Reason, exhausted: exhausted})
		return
	}
	p.counts.handled.Add(1)
	if err := p.run(p.work, w); err != nil {
		if !errors.Is(err, errCancelled) {
			p.log.Error("message given back", "stream", s.src.stream, "sequence", s.info.Sequence, "error", err)
		}
		p.postpone(s, minDelay)
		return
	}
	v := decide(w.out, s.attempt, c.cfg.Retry, p.rnd())
	w.told(v)
	if !judged {
		judged = true
		if spare := p.tell(b, s, w, v); spare > 0 {
			p.postpone(s, spare)
			return
		}
	}
	p.settle(s, w, v)
}

// past is the record of a message's failures. Of one that was held since its
// last attempt it is known.
func (p *pipeline) past(s *slot) (failures, error) {
	if s.before.Failed > 0 {
		return s.before, nil
	}
	deliveries := s.info.Deliveries
	if s.known { // the new consumer counts from one
		deliveries = max(deliveries, 2)
	}
	return p.attempts.of(p.work, s.ident, s.info.Sequence, deliveries)
}

// done frees the slot, and the credit with it.
func (p *pipeline) done(s *slot) {
	s.mu.Lock()
	for _, r := range s.results {
		p.results.Put(r)
	}
	src, bytes, c, stuck := s.src, s.bytes, s.chain, s.stuck
	ident, sequence, acked := s.ident, s.info.Sequence, s.state == settling && isAck(s.final)
	s.forget()
	s.mu.Unlock()
	if c != nil {
		c.leave()
	}
	p.slots.put(s)
	p.mu.Lock()
	p.inFlight--
	src.busy--
	if acked && src.ident == ident {
		src.known.settle(sequence)
	}
	p.bytes -= bytes
	if stuck {
		p.stuck--
	}
	src.pull.Credit(1)
	p.throttle()
	if p.draining && p.inFlight == 0 {
		p.closeEmpty()
	}
	p.mu.Unlock()
}

// swap changes what further messages are handled with. The old chain's idle
// closes when its last message ended.
func (p *pipeline) swap(c *chain) *chain {
	p.mu.Lock()
	old := p.chain
	p.chain = c
	parked := p.renewBreaker(c.cfg)
	p.mu.Unlock()
	old.retire()
	p.staff(c.cfg.Workers)
	for _, s := range parked {
		p.queue <- s
	}
	return old
}

// reconnected starts pulling anew: the server forgot the pulls.
func (p *pipeline) reconnected() {
	for _, src := range p.sources {
		src.pull.Reconnected()
		p.lookAfter(src)
	}
}

// lookReply is where the consumer of the i-th input answers look.
func (p *pipeline) lookReply(i int) string {
	return p.inbox + "." + lookToken + "." + strconv.Itoa(i) + ".0"
}

// replySubject is where the server answers the k-th request of a slot.
func (p *pipeline) replySubject(s *slot, k int) string {
	n := len(s.arena)
	b := s.arena
	b = append(b, p.inbox...)
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(s.index), 10)
	b = append(b, '.')
	b = strconv.AppendUint(b, uint64(s.term), 10)
	b = append(b, '.')
	s.arena = strconv.AppendInt(b, int64(k)+1, 10) // the final word is 0
	return s.arena.text(n)
}
