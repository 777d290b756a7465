package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// part is one of the parts into which a pipeline splits its input.
type part struct {
	of, n  int
	shares *shares
	// ready is false while messages from before the split are not settled.
	ready func(context.Context) (bool, error)
	after time.Time // of `start: new`: from here on; zero: from the first one
}

// parted is a pipeline with partitions: an ordered engine for each part, of
// which this process runs those that it has the lease of, and one more for what
// is in no part: messages from before the split, and replayed ones.
type parted struct {
	rest   *pipeline
	parts  []*pipeline
	shares *shares

	split  string // the key that says that all before the split is settled
	quiet  int    // looks in a row that found it so
	looked time.Time
	mu     sync.Mutex

	ctx    context.Context //nolint:containedctx // ends with the engine
	cancel context.CancelFunc
	member sync.WaitGroup
}

func openParted(ctx context.Context, b *broker, c *chain, in input, log *slog.Logger) (_ *parted, err error) {
	kv, err := b.leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", c.cfg.Name, err)
	}
	g := &parted{shares: &shares{
		open: b.leases, kv: kv, nc: b.out, log: log.With("pipeline", c.cfg.Name), pipeline: c.cfg.Key(), parts: in.parts,
		self: b.owner[strings.LastIndexByte(b.owner, ' ')+1:], owner: b.owner, mine: map[int]bool{},
	}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	whole := in
	whole.parts = 0
	if g.rest, err = openPipeline(ctx, b, c, []input{whole}, nil, log); err != nil {
		return nil, err
	}
	src := g.rest.sources[0]
	g.split = "split." + src.ident.key + "." + strconv.Itoa(in.parts)
	for n := range in.parts {
		mine := in
		mine.filters, mine.redo = []string{partFilter(in.stream, in.parts, n, c.cfg.From[0])}, ""
		pt := &part{of: in.parts, n: n, shares: g.shares, ready: g.ready}
		if c.cfg.Start.Policy == "new" {
			pt.after = src.known.made
		}
		p, err := openPipeline(ctx, b, c, []input{mine}, pt, log)
		if err != nil {
			return nil, err
		}
		g.parts = append(g.parts, p)
	}
	return g, nil
}

// ready looks whether all that was stored before the split is settled. Once it
// was, replayed messages, which come the same way, hold up nobody.
func (g *parted) ready(ctx context.Context) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, src := g.rest.broker, g.rest.sources[0]
	if g.quiet > 1 {
		return true, nil
	}
	if time.Since(g.looked) < leaseEvery/2 {
		return false, nil
	}
	g.looked = time.Now()
	if _, err := b.state.Get(ctx, g.split); err == nil {
		g.quiet = 2
		return true, nil
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, err
	}
	c, err := b.js.Consumer(ctx, src.stream, src.consumer)
	if err != nil {
		return false, err
	}
	if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
		g.quiet = 0
		return false, nil
	}
	// One more look: what was on its way when the stream was split may still come.
	if g.quiet++; g.quiet < 2 {
		return false, nil
	}
	_, err = b.state.Put(ctx, g.split, []byte(`{}`))
	if err != nil {
		g.quiet = 1
	}
	return err == nil, err
}

// each calls f for all engines side by side.
func (g *parted) each(f func(i int, p *pipeline)) {
	var wg sync.WaitGroup
	for i, p := range g.all() {
		wg.Go(func() { f(i, p) })
	}
	wg.Wait()
}

func (g *parted) all() []*pipeline {
	if g.rest == nil {
		return nil
	}
	return append([]*pipeline{g.rest}, g.parts...)
}

func (g *parted) begin() {
	g.member.Go(func() { g.shares.keep(g.ctx) })
	for _, p := range g.all() {
		p.begin()
	}
}

// swap gives all the one chain; the old one is idle when the last has left it.
func (g *parted) swap(c *chain) *chain {
	var old *chain
	for _, p := range g.all() {
		old = p.swap(c)
	}
	return old
}

// drain gives all parts back.
func (g *parted) drain(ctx context.Context, patience time.Duration) error {
	g.cancel()
	g.member.Wait()
	g.shares.leave(ctx)
	errs := make([]error, len(g.parts)+1)
	g.each(func(i int, p *pipeline) { errs[i] = p.drain(ctx, patience) })
	return errors.Join(errs...)
}

func (g *parted) close() {
	g.cancel()
	g.member.Wait()
	g.each(func(_ int, p *pipeline) { p.close() })
}

func (g *parted) tick(now time.Time, scratch []*slot) []*slot {
	for _, p := range g.all() {
		scratch = p.tick(now, scratch)
	}
	return scratch
}

// status is that of all parts together: of those that this process runs the
// worst state, and standby when it runs none.
func (g *parted) status() Status {
	rank := []string{StateStandby, StateRunning, StateWaiting, StateRecovering, StateBreaker, StateBlocked, StateLost}
	var s Status
	whys := map[string]bool{}
	runs := []string{}
	for i, p := range g.all() {
		t := p.status()
		if i == 0 {
			s = t
		} else {
			s.add(t)
		}
		if t.State != StateStandby && i > 0 {
			runs = append(runs, strconv.Itoa(i-1))
		}
		switch a, b := slices.Index(rank, t.State), slices.Index(rank, s.State); {
		case i == 0 || a > b:
			s.State = t.State
			clear(whys)
			fallthrough
		case a == b:
			if t.Why != "" {
				whys[t.Why] = true
			}
		}
	}
	s.Why = strings.Join(slices.Sorted(maps.Keys(whys)), "; ")
	if s.State == StateRunning || s.State == StateStandby {
		s.Why = "runs none of " + strconv.Itoa(len(g.parts)) + " parts"
		if len(runs) > 0 {
			s.Why = fmt.Sprintf("runs parts %s of %d", strings.Join(runs, ", "), len(g.parts))
		}
	}
	return s
}

// add counts another engine of the same pipeline in.
func (s *Status) add(t Status) {
	s.InFlight += t.InFlight
	s.Held += t.Held
	for _, c := range []struct {
		to *int64
		n  int64
	}{
		{&s.Handled, t.Handled}, {&s.Acked, t.Acked}, {&s.Filtered, t.Filtered}, {&s.Retried, t.Retried}, {&s.Dead, t.Dead}, {&s.Outputs, t.Outputs},
		{&s.LateAcks, t.LateAcks}, {&s.Refused, t.Refused}, {&s.Mended, t.Mended}, {&s.Skipped, t.Skipped},
	} {
		*c.to += c.n
	}
	for reason, n := range t.DeadBy {
		s.DeadBy[reason] += n
	}
	s.Seconds.Count += t.Seconds.Count
	s.Seconds.Sum += t.Seconds.Sum
	for le, n := range t.Seconds.Buckets {
		s.Seconds.Buckets[le] += n
	}
}

func (g *parted) reconnected() {
	for _, p := range g.all() {
		p.reconnected()
	}
}

func (g *parted) violated(v mq.Violation) {
	for _, p := range g.all() {
		p.violated(v)
	}
}

// consumerOf is the durable that the pipeline, or its part, wants on an input.
func (p *pipeline) consumerOf(src *source) jetstream.ConsumerConfig {
	c := consumerConfig(p.chain.cfg, src.filters)
	c.Durable = src.consumer
	if p.part != nil && c.DeliverPolicy == jetstream.DeliverNewPolicy {
		// What came between the split and this consumer is new too.
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &p.part.after
	}
	return c
}

// neverSplit refuses a pipeline that had partitions and has none any more: its
// own consumer would read all over again what those of the parts have read.
func (p *pipeline) neverSplit(ctx context.Context, stream string) error {
	st, err := p.broker.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	list := st.ConsumerNames(ctx)
	for name := range list.Name() {
		if n, ok := pipelineOf(name); ok && n == p.key && name != durable(p.key) {
			return fmt.Errorf("the pipeline had partitions, and consumer %s has its position: keep partitions, or rename the pipeline", name)
		}
	}
	return list.Err()
}

// pipelines are the engines with `commit: each` of an engine.
func pipelines(e engine) []*pipeline {
	switch e := e.(type) {
	case *pipeline:
		return []*pipeline{e}
	case *parted:
		return e.all()
	}
	return nil
}
