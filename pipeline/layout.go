package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/subject"
)

// held is a stream that is there before a configuration is applied.
type held struct {
	name     string
	subjects []string
	ours     bool
	created  time.Time
	maxMsg   int64
	queue    bool                              // what is acked is gone
	split    *jetstream.SubjectTransformConfig // of ours
}

// layout says which stream holds which subject, and where each pipeline reads.
type layout struct {
	streams []mq.StreamSpec // to be made or widened; a stream is never narrowed
	inputs  map[string][]input
	outputs map[string]string // stream of a pipeline with `commit: batch`
	deny    []string          // dead letter subjects: no guest publishes there
}

// outputStream holds what a pipeline publishes, so that no pipeline's output
// lies in its own input: one stream for both locks itself once it is full.
func outputStream(pipeline string) string {
	return mq.StreamName() + "_" + strings.ToUpper(pipeline)
}

// redoSubject is where replayed messages of a pipeline enter a stream of ours.
func redoSubject(stream, pipeline string) string {
	return "mqrun." + stream + ".redo." + pipeline
}

// planner collects the subjects of each stream.
type planner struct {
	cfg      *config.Config
	have     []held
	names    []string            // in the order of their first subject
	subjects map[string][]string // stream -> subjects to hold
	splits   map[string]*jetstream.SubjectTransformConfig
	problems config.Problems
}

// planLayout puts every subject of cfg into a stream: where an existing stream
// holds it, else where `streams` says, else into MQRUN, MQRUN_<PIPELINE> or
// MQRUN_DLQ.
func planLayout(cfg *config.Config, have []held, maxBytes, maxPayload int64) (layout, config.Problems) {
	p := &planner{cfg: cfg, have: have, subjects: map[string][]string{}, splits: map[string]*jetstream.SubjectTransformConfig{}}
	for _, name := range slices.Sorted(maps.Keys(cfg.Streams)) {
		for _, s := range cfg.Streams[name].Subjects {
			p.hold(name, s, "streams", name, "subjects")
		}
	}
	p.hold(mq.StreamName(), "ingest.>")
	p.hold(mq.DLQStreamName(), "dlq.>")
	names := slices.Sorted(maps.Keys(cfg.Pipelines))
	published := []string{}
	for _, name := range names {
		for _, s := range cfg.Publishes(name) {
			p.hold(outputStream(name), s, "pipelines", name, "to")
			published = append(published, s)
		}
	}
	l := layout{inputs: map[string][]input{}, outputs: map[string]string{}, deny: []string{"dlq.>"}}
	for _, name := range names {
		pl := cfg.Pipelines[name]
		for _, f := range pl.From {
			if !slices.ContainsFunc(published, func(s string) bool { return subject.Overlap(s, f) }) {
				p.hold(mq.StreamName(), f, "pipelines", name, "from")
			}
		}
		if d := pl.DeadLetter; d != config.DeadLetterNone {
			p.hold(mq.DLQStreamName(), d, "pipelines", name, "dead_letter")
			if !subject.Covers("dlq.>", d) && !slices.Contains(l.deny, d) {
				l.deny = append(l.deny, d)
			}
		}
	}
	p.deadLettersFit(maxPayload)
	for _, name := range names {
		l.inputs[name] = p.inputs(cfg.Pipelines[name], maxPayload)
		if cfg.Pipelines[name].Commit == "batch" {
			l.outputs[name] = p.batchOutput(cfg.Pipelines[name], l.inputs[name])
		}
	}
	for _, name := range names {
		p.split(cfg.Pipelines[name], l.inputs[name])
	}
	for _, name := range names {
		p.widen(cfg.Pipelines[name], l.inputs[name])
	}
	l.streams = p.specs(maxBytes, maxPayload)
	return l, p.problems
}

// hold assigns a subject to a stream unless another one has it already.
func (p *planner) hold(stream, s string, path ...string) {
	for _, h := range p.have {
		if h.name == stream {
			continue
		}
		for _, hs := range h.subjects {
			if subject.Covers(hs, s) {
				if !h.ours && len(path) > 0 && path[0] == "streams" {
					p.problem(fmt.Sprintf("stream %s is not mqrun's and holds %q, so stream %s cannot hold %q: leave it out here and it is read from there, or take it from that stream first", h.name, hs, stream, s), path)
				}
				return
			}
			if subject.Overlap(hs, s) {
				p.problem(fmt.Sprintf("subject %q is held in part by stream %s (%q), so stream %s cannot hold it: name the streams under `streams:`", s, h.name, hs, stream), path)
				return
			}
		}
	}
	for _, other := range p.names {
		for _, os := range p.subjects[other] {
			switch {
			case subject.Covers(os, s):
				return
			case other != stream && subject.Overlap(os, s):
				p.problem(fmt.Sprintf("subject %q overlaps %q of stream %s: name the streams under `streams:`", s, os, other), path)
				return
			}
		}
	}
	if _, ok := p.subjects[stream]; !ok {
		p.names = append(p.names, stream)
	}
	kept := slices.DeleteFunc(p.subjects[stream], func(o string) bool { return subject.Covers(s, o) })
	p.subjects[stream] = append(kept, s)
}

func (p *planner) problem(message string, path []string) {
	p.problems = append(p.problems, p.cfg.Problem(message, "", path...))
}

// inputs lists the streams that a pipeline reads.
func (p *planner) inputs(pl *config.Pipeline, maxPayload int64) []input {
	var ins []input
	add := func(name string, subjects []string, ours bool, maxMsg int64, created time.Time) {
		var filters []string
		for _, f := range pl.From {
			if slices.ContainsFunc(subjects, func(s string) bool { return subject.Overlap(s, f) }) {
				filters = append(filters, f)
			}
		}
		if filters == nil || slices.ContainsFunc(ins, func(i input) bool { return i.stream == name }) {
			return
		}
		for _, out := range p.cfg.Publishes(pl.Name) {
			if slices.ContainsFunc(subjects, func(s string) bool { return subject.Overlap(s, out) }) {
				p.problem(fmt.Sprintf("input and output (%q) both lie in stream %s, which would lock itself once it is full: give the output a stream of its own under `streams:`", out, name), []string{"pipelines", pl.Name, "to"})
			}
		}
		in := input{stream: name, filters: filters, maxMsg: maxMsg, created: created}
		if ours {
			in.redo = redoSubject(name, pl.Key())
			in.filters = append(in.filters, in.redo)
		}
		ins = append(ins, in)
	}
	for _, h := range p.have {
		subjects := h.subjects
		if h.ours {
			subjects = append(slices.Clone(subjects), p.subjects[h.name]...)
		}
		add(h.name, subjects, h.ours, h.maxMsg, h.created)
	}
	for _, name := range p.names {
		add(name, p.subjects[name], true, p.maxMsg(name, maxPayload), time.Time{})
	}
	return ins
}

// batchOutput is the stream that holds all outputs of a pipeline with
// `commit: batch`: an atomic batch goes into one stream, and so does the
// checkpoint, which only a stream of ours takes.
func (p *planner) batchOutput(pl *config.Pipeline, ins []input) string {
	at := []string{"pipelines", pl.Name, "commit"}
	if len(ins) != 1 {
		p.problem(fmt.Sprintf("commit: batch reads one stream; from lies in %d", len(ins)), at)
		return ""
	}
	if slices.ContainsFunc(p.have, func(h held) bool { return h.name == ins[0].stream && h.queue }) {
		p.problem(fmt.Sprintf("commit: batch acks nothing, so it cannot read stream %s, which keeps each message until it is acked; use commit: each", ins[0].stream), at)
		return ""
	}
	var streams []string
	ours := true
	for _, out := range p.cfg.Publishes(pl.Name) {
		name, mine := p.streamOf(out)
		if !slices.Contains(streams, name) {
			streams = append(streams, name)
		}
		ours = ours && mine
	}
	switch {
	case len(streams) == 0:
		p.problem("commit: batch keeps its checkpoint with the outputs, and this pipeline has none: set to, or use commit: each", at)
	case len(streams) > 1:
		p.problem(fmt.Sprintf("commit: batch needs all outputs in one stream; they lie in %s", strings.Join(streams, ", ")), at)
	case !ours:
		p.problem(fmt.Sprintf("commit: batch needs a stream made by mqrun for its outputs; %s is not", streams[0]), at)
	default:
		return streams[0]
	}
	return ""
}

// deadLettersFit refuses streams that could not even hold a dead letter without
// its payload: the message would wait for ever.
func (p *planner) deadLettersFit(maxPayload int64) {
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Pipelines)) {
		d := p.cfg.Pipelines[name].DeadLetter
		if d == config.DeadLetterNone {
			continue
		}
		stream, _ := p.streamOf(d)
		limit := p.maxMsg(stream, maxPayload)
		for _, h := range p.have {
			if h.name == stream {
				limit = h.maxMsg
			}
		}
		if stream != "" && limit < deadRoom {
			p.problem(fmt.Sprintf("stream %s takes messages of %d bytes, and a dead letter needs up to %d for its headers alone: raise its max_msg_size, or name another dead_letter", stream, limit, deadRoom), []string{"pipelines", name, "dead_letter"})
		}
	}
}

// streamOf is the stream that holds a subject once the plan is carried out.
func (p *planner) streamOf(s string) (name string, ours bool) {
	covers := func(o string) bool { return subject.Covers(o, s) }
	for _, h := range p.have {
		if slices.ContainsFunc(h.subjects, covers) {
			return h.name, h.ours
		}
	}
	for _, name := range p.names {
		if slices.ContainsFunc(p.subjects[name], covers) {
			return name, true
		}
	}
	return "", false
}

// maxMsg is the largest message of a stream of ours. Dead letters carry
// headers that their originals had not.
func (p *planner) maxMsg(stream string, maxPayload int64) int64 {
	if s := p.cfg.Streams[stream]; s != nil && s.MaxMsgSize > 0 {
		return s.MaxMsgSize
	}
	if stream == mq.DLQStreamName() {
		return maxPayload
	}
	return maxPayload - deadRoom
}

func (p *planner) specs(maxBytes, maxPayload int64) []mq.StreamSpec {
	budget := mq.Budget(maxBytes, len(p.cfg.Pipelines))
	var specs []mq.StreamSpec
	for _, name := range p.names {
		spec := mq.StreamSpec{
			Name: name, Subjects: append(slices.Clone(p.subjects[name]), "mqrun."+name+".>"),
			MaxMsgSize: p.maxMsg(name, maxPayload), MaxBytes: budget.Output,
		}
		spec.Split = p.splits[name]
		switch name {
		case mq.StreamName():
			spec.MaxBytes = budget.Input
		case mq.DLQStreamName():
			spec.MaxBytes, spec.Subjects = budget.DLQ, p.subjects[name]
		}
		if s := p.cfg.Streams[name]; s != nil {
			spec.Declared = true
			spec.MaxAge, spec.DuplicateWindow, spec.Replicas = s.MaxAge, s.DuplicateWindow, s.Replicas
			if s.MaxBytes > 0 {
				spec.MaxBytes = s.MaxBytes
			}
		}
		specs = append(specs, spec)
	}
	return specs
}
