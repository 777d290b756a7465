package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/subject"
)

// Rehearsal runs messages through the pipelines of a configuration as the
// engine does, but without a broker: what would be published is returned.
// Buckets are in memory. One run at a time.
type Rehearsal struct {
	cfg     *config.Config
	plugins map[string]*plugin
	stages  map[string]stage
	buckets *memoryKV
}

// Line is a message in a rehearsal.
type Line struct {
	Subject string
	Header  nats.Header
	Data    []byte
	Attempt int // from 1; 0 is 1
}

// Performance is what a pipeline, or a plugin alone, made of a message.
type Performance struct {
	Pipeline string // or the plugin's name
	Input    Line
	// Verdict is ok, drop, retry or reject when the handler said so, else the
	// word that Mqrun-Reason would have: trap, timeout, emit ...
	Verdict string
	Reason  string // for people; what the guest said, or how the call failed
	Dead    bool   // it would be a dead letter now
	Step    string // that it failed in
	Outputs []Line
	Log     string // of the last step
}

// OpenRehearsal loads every plugin of cfg. The error is config.Problems when
// one cannot be loaded.
func OpenRehearsal(ctx context.Context, rt *host.Runtime, cfg *config.Config) (*Rehearsal, error) {
	r := &Rehearsal{cfg: cfg, stages: map[string]stage{}, buckets: newMemoryKV()}
	var problems config.Problems
	if r.plugins, problems = loadPlugins(ctx, sandboxed(rt, r.buckets), cfg, nil); problems != nil {
		return nil, problems
	}
	layout, problems := planLayout(cfg, nil, cfg.Server.MaxBytes, cfg.Server.MaxPayload)
	if problems != nil {
		_ = closePlugins(ctx, r.plugins, nil) // the problems are what matters
		return nil, problems
	}
	for name, p := range cfg.Pipelines {
		r.stages[name] = newStage(cfg.Server.MaxPayload-mq.PayloadReserve, chainFor(p, 0, r.plugins, layout.deny))
	}
	return r, nil
}

// Close closes the plugins.
func (r *Rehearsal) Close(ctx context.Context) error { return closePlugins(ctx, r.plugins, nil) }

// Forget empties all buckets.
func (r *Rehearsal) Forget() { r.buckets.forget() }

// Plugin runs one plugin alone. What it emits without a subject goes to `to`.
func (r *Rehearsal) Plugin(ctx context.Context, name string, in Line) (Performance, error) {
	if r.plugins[name] == nil {
		return Performance{}, fmt.Errorf("no plugin is called %q; there are %v", name, slices.Sorted(maps.Keys(r.plugins)))
	}
	p := &config.Pipeline{Name: name, Steps: []string{name}, To: "to", Retry: config.Retry{Attempts: max(12, in.Attempt+1)}}
	return newStage(r.cfg.Server.MaxPayload-mq.PayloadReserve, chainFor(p, 0, r.plugins, []string{"dlq.>"})).perform(ctx, in)
}

// Pipeline runs one pipeline.
func (r *Rehearsal) Pipeline(ctx context.Context, name string, in Line) (Performance, error) {
	s, ok := r.stages[name]
	if !ok {
		return Performance{}, fmt.Errorf("no pipeline is called %q; there are %v", name, slices.Sorted(maps.Keys(r.stages)))
	}
	return s.perform(ctx, in)
}

// maxPerformances bounds a chain: pipelines may form a ring.
const maxPerformances = 10_000

// Chain runs a pipeline and then every pipeline that reads what was published,
// until nobody does. The first performance is of the pipeline itself; out is
// what nobody reads.
func (r *Rehearsal) Chain(ctx context.Context, name string, in Line) (all []Performance, out []Line, err error) {
	type visit struct {
		pipeline string
		line     Line
	}
	for next := []visit{{name, in}}; len(next) > 0; next = next[1:] {
		if len(all) == maxPerformances {
			return all, out, fmt.Errorf("more than %d messages came of one; do the pipelines form a ring?", maxPerformances)
		}
		p, err := r.Pipeline(ctx, next[0].pipeline, next[0].line)
		if err != nil {
			return all, out, err
		}
		all = append(all, p)
		for _, o := range p.Outputs {
			readers := r.readers(o.Subject)
			for _, reader := range readers {
				next = append(next, visit{reader, o})
			}
			if readers == nil {
				out = append(out, o)
			}
		}
	}
	return all, out, nil
}

// readers are the pipelines that get what is published on a subject.
func (r *Rehearsal) readers(s string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Pipelines)) {
		if slices.ContainsFunc(r.cfg.Pipelines[name].From, func(f string) bool { return subject.Match(f, s) }) {
			names = append(names, name)
		}
	}
	return names
}

// stage is a pipeline without its broker.
type stage struct {
	walker *walker
	chain  *chain
}

func newStage(limit int64, c *chain) stage {
	return stage{newWalker(c.cfg, &broker{limit: func(string) int64 { return limit }}, slog.New(slog.DiscardHandler)), c}
}

// walk takes a message through the steps and says what the host would do.
func (st stage) walk(ctx context.Context, s *slot) (*walk, verdict, error) {
	s.chain = st.chain
	w := &walk{pipe: st.walker, s: s}
	if err := w.run(ctx); err != nil {
		return nil, verdict{}, err
	}
	return w, decide(w.out, s.attempt, st.chain.cfg.Retry, 0.5), nil
}

// done gives back the memory of a walk.
func (st stage) done(s *slot) {
	for _, r := range s.results {
		st.walker.results.Put(r)
	}
}

func (st stage) perform(ctx context.Context, in Line) (Performance, error) {
	in.Attempt = max(in.Attempt, 1)
	s := &slot{
		src: &source{stream: mq.StreamName()}, subject: in.Subject, attempt: in.Attempt,
		msg:  &nats.Msg{Subject: in.Subject, Header: in.Header, Data: in.Data},
		info: mq.AckInfo{Stream: mq.StreamName(), Sequence: 1, Time: time.Now()},
	}
	w, v, err := st.walk(ctx, s)
	if err != nil {
		return Performance{}, err
	}
	defer st.done(s)
	p := Performance{Pipeline: st.walker.name, Input: in, Verdict: v.reason, Reason: w.text, Dead: v.action == actDead, Log: string(w.log)}
	switch {
	case v.filtered:
		p.Verdict = "drop"
	case v.action == actAck:
		p.Verdict = "ok"
	case v.reason == reasonRejected:
		p.Verdict = "reject"
	}
	if v.action != actAck {
		p.Step = w.step.name
		return p, nil
	}
	for _, o := range w.outs {
		h := nats.Header{}
		outputHeader(h, s.msg.Header, o.Header)
		p.Outputs = append(p.Outputs, Line{Subject: o.Subject, Header: h, Data: bytes.Clone(o.Data)})
	}
	return p, nil
}
