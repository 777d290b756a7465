package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

const (
	adviceMaxDeliveries = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES"
	adviceTerminated    = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED"

	rescueEvery = time.Second      // between attempts at a dead letter that cannot be stored
	parkedEvery = 30 * time.Second // between looks at the work queues
	rescueLimit = 10 * time.Second
	maxGivenUp  = 100_000 // known at once; a stream of strangers' advisories must not fill the memory
)

// givenUp is a message that the server will not deliver again although nobody
// has acked it. mqrun never asks for that; somebody else can.
type givenUp struct {
	pipeline, stream string // pipeline: its key
	sequence         uint64
	deliveries       uint64
	reason, why      string
}

// rescuer is the net under the host's own dead letters: what the server gives
// up is taken from the stream and becomes a dead letter with the id that the
// host's own would have, so that both together store one.
type rescuer struct {
	m    *Manager
	subs []*nats.Subscription
	wake chan struct{}

	mu      sync.Mutex
	waiting []givenUp
	inputs  map[string][]input // of the running pipelines
}

func newRescuer(m *Manager, nc *nats.Conn) (*rescuer, error) {
	r := &rescuer{m: m, wake: make(chan struct{}, 1)}
	for _, subject := range []string{adviceMaxDeliveries, adviceTerminated} {
		sub, err := nc.Subscribe(subject+".*.*", r.advice)
		if err != nil {
			return nil, fmt.Errorf("listen for messages that the server gives up: %w", err)
		}
		r.subs = append(r.subs, sub)
	}
	return r, nil
}

// advice reads the server's word that it gave a message up.
func (r *rescuer) advice(m *nats.Msg) {
	var a struct {
		Stream     string `json:"stream"`
		Consumer   string `json:"consumer"`
		Sequence   uint64 `json:"stream_seq"`
		Deliveries uint64 `json:"deliveries"`
		Reason     string `json:"reason"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		r.m.o.Logger.Warn("advisory not understood", "subject", m.Subject, "error", err)
		return
	}
	name, ours := pipelineOf(a.Consumer)
	if !ours {
		return
	}
	g := givenUp{pipeline: name, stream: a.Stream, sequence: a.Sequence, deliveries: a.Deliveries}
	if strings.HasPrefix(m.Subject, adviceTerminated+".") {
		g.reason, g.why = reasonTerminated, "somebody terminated the message at the server"
		if a.Reason != "" {
			g.why += ": " + a.Reason
		}
	} else {
		g.reason = reasonMaxDeliveries
		g.why = fmt.Sprintf("the server gave the message up after %d deliveries: somebody set max_deliver on the consumer %s", a.Deliveries, a.Consumer)
	}
	r.add(g)
}

func (r *rescuer) add(g givenUp) {
	r.mu.Lock()
	full := len(r.waiting) >= maxGivenUp
	if !full {
		r.waiting = append(r.waiting, g)
	}
	r.mu.Unlock()
	if full {
		r.m.o.Logger.Error("too many messages given up at once; this one is only in its stream", "pipeline", g.pipeline, "stream", g.stream, "sequence", g.sequence)
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run saves what is waiting until ctx ends, and tries once more then.
func (r *rescuer) run(ctx context.Context) {
	t := time.NewTicker(rescueEvery)
	defer t.Stop()
	var suspects map[place]givenUp
	var checked time.Time
	for {
		select {
		case <-r.wake:
		case now := <-t.C:
			if len(suspects) > 0 || now.Sub(checked) >= parkedEvery {
				suspects, checked = r.parked(ctx, suspects), now
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), rescueEvery)
			r.saveAll(last)
			cancel()
			return
		}
		r.saveAll(ctx)
	}
}

func (r *rescuer) close() {
	for _, s := range r.subs {
		_ = s.Unsubscribe()
	}
}

// saveAll leaves in waiting what could not be saved yet.
func (r *rescuer) saveAll(ctx context.Context) {
	r.mu.Lock()
	all := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for i, g := range all {
		err := r.save(ctx, g)
		if err == nil {
			continue
		}
		r.m.o.Logger.Warn("message given up by the server is not a dead letter yet", "pipeline", g.pipeline, "stream", g.stream, "sequence", g.sequence, "error", err)
		r.mu.Lock()
		r.waiting = append(all[i:], r.waiting...)
		r.mu.Unlock()
		return
	}
}

// save makes the message a dead letter.
func (r *rescuer) save(ctx context.Context, g givenUp) error {
	ctx, cancel := context.WithTimeout(ctx, rescueLimit)
	defer cancel()
	log := r.m.o.Logger.With("pipeline", g.pipeline, "stream", g.stream, "sequence", g.sequence, "reason", g.reason)
	_, cfg := r.m.known(g.pipeline)
	if cfg == nil {
		log.Warn("message of a pipeline that is not configured was given up; it is only in its stream")
		return nil
	}
	if r.m.atWork(g, r.add) {
		return nil // its own end decides
	}
	st, err := r.m.broker.js.Stream(ctx, g.stream)
	if err != nil {
		return err
	}
	m, err := mq.ReadStored(ctx, r.m.broker.out, g.stream, g.sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		log.Error("message given up is no longer in its stream: it cannot become a dead letter", "error", g.why)
		return nil
	}
	if err != nil {
		return err
	}
	info := st.CachedInfo()
	src := &source{stream: g.stream, ident: r.m.identity(g.pipeline, g.stream, info.Created), redo: redoSubject(g.stream, g.pipeline)}
	if err := r.publish(ctx, cfg, src, g, m); err != nil {
		return err
	}
	if info.Config.Retention == jetstream.WorkQueuePolicy {
		// An ack would have removed it.
		if err := st.DeleteMsg(ctx, g.sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return err
		}
	}
	e, _ := r.m.known(g.pipeline)
	if ps := pipelines(e); ps != nil {
		ps[0].counts.died(g.reason)
	}
	log.Error("message given up by the server; dead letter to "+cfg.DeadLetter, "error", g.why)
	return nil
}

func (r *rescuer) publish(ctx context.Context, cfg *config.Pipeline, src *source, g givenUp, m *mq.Stored) error {
	if cfg.DeadLetter == config.DeadLetterNone {
		return nil
	}
	msg := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	s := &slot{
		src: src, ident: src.ident, subject: src.original(msg), msg: msg,
		info: mq.AckInfo{Stream: g.stream, Sequence: g.sequence, Deliveries: g.deliveries, Time: m.Time},
	}
	a := attempts{kv: r.m.broker.attempts}
	before, err := a.of(ctx, src.ident, g.sequence, 2)
	if err != nil {
		return err
	}
	d := dead{reason: g.reason, text: g.why, exhausted: g.reason == reasonMaxDeliveries, generation: r.m.Generation(), attempts: before.Failed, at: time.Now()}
	if before.Failed > 0 {
		d.text += "; its last failure: " + before.Reason
		if before.Error != "" {
			d.text += ": " + before.Error
		}
	}
	h, data := deadLetter(g.pipeline, s, d, r.m.limit(cfg.DeadLetter))
	h[hdrMsgID] = []string{src.ident.id(g.sequence, "dlq")}
	_, err = r.m.broker.js.PublishMsg(ctx, &nats.Msg{Subject: cfg.DeadLetter, Header: h, Data: data})
	return err
}

// known is the pipeline with the key, running or at least configured.
func (m *Manager) known(key string) (engine, *config.Pipeline) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, p := range m.cfg.Pipelines {
		if p.Key() == key {
			return m.pipelines[name], p
		}
	}
	return nil, nil
}

// identity is that of a pipeline's input as the running pipeline has it, which
// knows of losses of the stream.
func (m *Manager) identity(pipe, stream string, created time.Time) *identity {
	e, _ := m.known(pipe)
	for _, p := range pipelines(e) {
		if id := p.identityIn(stream, created); id != nil {
			return id
		}
	}
	return newIdentity(pipe, stream, created)
}

func (p *pipeline) identityIn(stream string, created time.Time) *identity {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, src := range p.sources {
		if src.stream == stream && src.ident.made.Equal(created) {
			return src.ident
		}
	}
	return nil
}

// atWork reports whether a message that the server gave up is still in a slot
// of ours. It may yet be acked; when it is given back instead, again is called.
func (m *Manager) atWork(g givenUp, again func(givenUp)) bool {
	e, _ := m.known(g.pipeline)
	return slices.ContainsFunc(pipelines(e), func(p *pipeline) bool { return p.atWork(g, again) })
}

func (p *pipeline) atWork(g givenUp, again func(givenUp)) bool {
	for _, src := range p.sources {
		if src.stream != g.stream {
			continue
		}
		s := p.slots.holding(src, g.sequence)
		if s == nil {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.state == free || s.src != src || s.info.Sequence != g.sequence {
			return false
		}
		s.orphan = func() { again(g) }
		return true
	}
	return false
}
