package pipeline

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

// batch is one running pipeline with `commit: batch`. Messages are handled in
// parallel; their results are committed in stream order, many at a time, by
// atomic batches that hold the outputs, the parked retries and the checkpoint.
// There is no durable: the checkpoint is the position.
type batch struct {
	*walker
	in     input
	src    *source
	out    string // stream of the outputs and the checkpoint
	parkAt string
	window int // messages admitted at once

	entries   sync.Pool
	work      context.Context //nolint:containedctx // ends with the engine, to stop its guests
	abort     context.CancelFunc
	queue     chan *entry
	quit      chan struct{}
	workers   sync.WaitGroup
	committer *committer
	attempts  attempts // of crashes alone: other failures are in the parked copies

	mu         sync.Mutex
	chain      *chain
	width      int
	alive      int
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
		queue:   make(chan *entry, 8*c.cfg.MaxInFlight), quit: make(chan struct{}),
	}
	p.attempts = attempts{kv: b.attempts, known: map[string]failures{}}
	p.work, p.abort = context.WithCancel(context.Background())
	p.parkAt = parkSubject(p.out, p.name, 0)
	if err := p.open(ctx); err != nil {
		p.close()
		return nil, fmt.Errorf("pipeline %s: %w", p.name, err)
	}
	p.setWorkers(c.cfg.Workers)
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

// consume makes a consumer behind the last message admitted. It lives only as
// long as somebody pulls from it.
func (p *batch) consume(ctx context.Context) error {
	p.mu.Lock()
	start := p.admitted + 1
	p.mu.Unlock()
	st, err := p.broker.js.Stream(ctx, p.in.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		p.broker.missing()
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", p.in.stream, err)
	}
	if made := st.CachedInfo().Created; !made.Equal(p.in.created) {
		return fmt.Errorf("stream %s was made anew at %s and the checkpoint is of the one before; say where it goes on (mqrun batch set-position %s SEQUENCE) and start mqrun again", p.in.stream, made.UTC().Format(time.RFC3339), p.name)
	}
	c, err := p.broker.js.CreateConsumer(ctx, p.in.stream, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: start,
		FilterSubjects: p.in.filters, InactiveThreshold: time.Minute, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		return fmt.Errorf("consumer on stream %s: %w", p.in.stream, err)
	}
	var pull *mq.Pull
	pull, err = mq.NewPull(p.broker.in, mq.PullConfig{
		Stream: p.in.stream, Consumer: c.CachedInfo().Name,
		Batch: max(1, p.window/4), MaxBytes: max(maxInFlightBytes/4, 2*p.in.maxMsg),
		Deliver: func(m *nats.Msg) { p.deliver(pull, m) },
		Lost:    func(err error) { p.restart(pull, err) },
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.pull, p.expect = pull, 1
	p.mu.Unlock()
	return nil
}

func (p *batch) begin() {
	p.committer.start()
	p.mu.Lock()
	pull, n := p.pull, p.window-p.inFlight
	p.mu.Unlock()
	pull.Credit(n)
}

// deliver admits a message to the end of the line.
func (p *batch) deliver(pull *mq.Pull, m *nats.Msg) {
	info, err := mq.ParseAck(m.Reply)
	if err != nil {
		p.log.Error("delivery ignored", "error", err)
		return
	}
	p.mu.Lock()
	if p.pull != pull || p.releasing || p.restarting {
		p.mu.Unlock()
		return
	}
	if info.ConsumerSequence != p.expect {
		p.mu.Unlock()
		p.restart(pull, fmt.Errorf("delivery %d came where %d was expected", info.ConsumerSequence, p.expect))
		return
	}
	e := p.entries.Get().(*entry)
	e.src, e.ident, e.msg, e.info, e.subject, e.bytes = p.src, p.src.ident, m, info, m.Subject, int64(len(m.Data))
	if p.src.redo != "" && m.Subject == p.src.redo {
		if orig := get(m.Header, hdrSubject); orig != "" {
			e.subject = orig
		}
	}
	p.expect++
	p.admitted = info.Sequence
	p.line = append(p.line, e)
	p.inFlight++
	p.bytes += e.bytes
	p.throttle()
	p.mu.Unlock()
	p.queue <- e
}

// throttle holds pulls back while too many bytes are in flight. p.mu is held.
func (p *batch) throttle() {
	p.pull.Pause(p.bytes > maxInFlightBytes/2 || p.lost != "")
}

// restart makes a new consumer where a delivery was lost or the old one is
// gone: an AckNone consumer gives nothing twice.
func (p *batch) restart(pull *mq.Pull, why error) {
	p.mu.Lock()
	if p.pull != pull || p.restarting || p.draining {
		p.mu.Unlock()
		return
	}
	p.restarting = true
	p.mu.Unlock()
	p.log.Warn("consumer made again", "stream", p.in.stream, "reason", why)
	p.workers.Go(func() {
		_ = pull.Stop()
		for wait := refusedFirst; ; wait = min(2*wait, refusedMost) {
			ctx, cancel := context.WithTimeout(p.work, flushWait)
			err := p.consume(ctx)
			cancel()
			if err == nil {
				break
			}
			p.mu.Lock()
			known := p.lost == err.Error()
			p.lost = err.Error()
			p.mu.Unlock()
			if !known {
				p.log.Error("input cannot go on, trying again", "stream", p.in.stream, "error", err)
			}
			select {
			case <-time.After(wait):
			case <-p.quit:
				return
			}
		}
		p.mu.Lock()
		p.restarting, p.lost = false, ""
		next, n := p.pull, p.window-p.inFlight
		p.throttle()
		p.mu.Unlock()
		next.Credit(n)
	})
}

func (p *batch) setWorkers(n int) {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.width = n
	for p.alive < p.width {
		p.alive++
		p.workers.Go(p.worker)
	}
}

func (p *batch) worker() {
	for {
		select {
		case e := <-p.queue:
			p.handle(e)
		case <-p.quit:
			return
		}
		p.mu.Lock()
		if p.alive > p.width {
			p.alive--
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// handle takes one message through the steps and leaves its result for the
// committer.
func (p *batch) handle(e *entry) {
	p.mu.Lock()
	for !p.releasing && !p.chain.enter() {
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
	}
	if p.releasing {
		p.mu.Unlock()
		return
	}
	e.begun, e.chain = true, p.chain
	p.mu.Unlock()
	before, err := p.attempts.of(p.work, p.src.ident, e.info.Sequence, 1)
	if err != nil {
		p.log.Warn("attempts unknown", "sequence", e.info.Sequence, "error", err)
	}
	e.attempt = e.failed + before.Crashes + 1
	w := &e.walk
	w.pipe, w.s, w.before = p.walker, &e.slot, before
	if exhausted := e.attempt > e.chain.cfg.Retry.Attempts; exhausted || before.Crashes >= crashesDead {
		e.attempt--
		w.step = &e.chain.steps[min(before.Step, len(e.chain.steps)-1)]
		w.out.failure, w.text = before.Reason, before.Error
		e.chain.leave()
		p.judge(e, w, verdict{action: actDead, reason: before.Reason, exhausted: exhausted})
		return
	}
	p.counts.handled.Add(1)
	err = p.run(p.work, w)
	e.chain.leave()
	if err != nil {
		if !errors.Is(err, errCancelled) { // it was not the message's fault
			p.log.Error("message handled again later", "stream", p.in.stream, "sequence", e.info.Sequence, "error", err)
			p.workers.Go(func() { p.later(e) })
		}
		return // the checkpoint stays before it
	}
	if len(w.outs) >= groupMessages {
		w.fail(&e.chain.steps[len(e.chain.steps)-1], outcome{failure: host.ReasonLimit}, fmt.Sprintf("%d outputs; with commit: batch one message may have %d", len(w.outs), groupMessages-1))
	}
	p.judge(e, w, decide(w.out, e.attempt, e.chain.cfg.Retry, p.rnd()))
}

// judge leaves a verdict for the committer; a dead letter is stored first.
func (p *batch) judge(e *entry, w *walk, v verdict) {
	e.v, e.outs = v, w.outs
	switch v.action { //nolint:exhaustive // nothing else asks for anything
	case actNak:
		e.due = p.now().Add(e.v.delay)
		p.log.Warn(fmt.Sprintf("%s; attempt %d of %d, next in %v", w.describe(e.v.reason), e.attempt, e.chain.cfg.Retry.Attempts, e.v.delay.Round(time.Millisecond)), "step", w.step.name)
	case actDead:
		if to := e.chain.cfg.DeadLetter; to != "none" {
			h, data := deadLetter(p.name, &e.slot, w.dead(e.v, p.now()), p.broker.limit(to))
			h[hdrMsgID] = []string{p.src.ident.id(e.info.Sequence, "dlq")}
			p.workers.Go(func() { p.bury(e, &nats.Msg{Subject: to, Header: h, Data: data}, w.describe(e.v.reason)) })
			return
		}
		p.log.Error(w.describe(e.v.reason)+"; dead letter to nowhere (dead_letter: none)", "step", w.step.name)
	}
	p.ended(e, w.bytes)
}

// later puts a message that the host could not handle back to the workers.
func (p *batch) later(e *entry) {
	select {
	case <-time.After(time.Second):
	case <-p.quit:
		return
	}
	select {
	case p.queue <- e:
	case <-p.quit:
	}
}

// bury stores a dead letter before the group of its message can commit.
func (p *batch) bury(e *entry, m *nats.Msg, line string) {
	for wait := refusedFirst; ; wait = min(2*wait, refusedMost) {
		ctx, cancel := context.WithTimeout(p.work, pubAckWait)
		r, err := p.broker.out.RequestMsgWithContext(ctx, m)
		cancel()
		var why string
		if err != nil {
			why = err.Error()
		} else {
			why = pubAckError(r)
		}
		if why == "" {
			break
		}
		p.counts.publishRefused.Add(1)
		p.committer.blocked("publish to " + m.Subject + ": " + why)
		select {
		case <-time.After(wait):
		case <-p.quit:
			return
		}
	}
	p.log.Warn(line+"; dead letter to "+m.Subject, "attempts", e.attempt)
	p.ended(e, 0)
}

// ended leaves a result for the committer.
func (p *batch) ended(e *entry, bytes int64) {
	p.mu.Lock()
	e.ended = true
	e.bytes += bytes
	p.bytes += bytes
	if e.parked {
		p.again = append(p.again, e)
	}
	wake := e.parked || len(p.line) > 0 && p.line[0].ended
	p.throttle()
	p.mu.Unlock()
	if wake {
		p.committer.nudge()
	}
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

// revive reads parked copies and hands them to the workers.
func (p *batch) revive(due []parked) {
	for _, w := range due {
		ctx, cancel := context.WithTimeout(p.work, flushWait)
		m, err := unpark(ctx, p.broker.js, p.out, p.parkAt, w.sequence)
		cancel()
		if err != nil {
			p.log.Warn("parked message not read, tried again", "sequence", w.sequence, "error", err)
			p.mu.Lock()
			p.inFlight--
			heap.Push(&p.waiting, parked{sequence: w.sequence, due: p.now().Add(time.Second)})
			p.mu.Unlock()
			continue
		}
		attempts, _ := strconv.Atoi(m.Header.Get(hdrAttempts))
		stored, _ := strconv.ParseInt(m.Header.Get(hdrTime), 10, 64)
		e := &entry{parked: true, failed: attempts, slot: slot{
			src: p.src, ident: p.src.ident, subject: m.Header.Get(hdrSubject), bytes: int64(len(m.Data)),
			msg:  &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data},
			info: mq.AckInfo{Stream: p.in.stream, Sequence: w.sequence, Time: time.Unix(0, stored), Deliveries: uint64(attempts + 1)},
		}}
		p.mu.Lock()
		p.bytes += e.bytes
		p.mu.Unlock()
		select {
		case p.queue <- e:
		case <-p.quit:
			return
		}
	}
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
	p.setWorkers(c.cfg.Workers)
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
