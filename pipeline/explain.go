package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/subject"
)

// Section is one part of an explanation.
type Section struct {
	Name  string   `json:"name"`
	Lines []string `json:"lines"`
}

// Explain says in words what a pipeline does with a message: where it reads
// and publishes, when it tries again, and what becomes of read messages. js
// tells which streams are there; nil stands for a new store.
func Explain(ctx context.Context, js jetstream.JetStream, cfg *config.Config, name string) ([]Section, error) {
	p := cfg.Pipelines[name]
	if p == nil {
		return nil, fmt.Errorf("explain pipeline %q: the configuration has none of that name; it has %s", name, strings.Join(slices.Sorted(maps.Keys(cfg.Pipelines)), ", "))
	}
	var have []held
	if js != nil {
		var err error
		if have, err = heldStreams(ctx, js, cfg.Server.MaxPayload); err != nil {
			return nil, fmt.Errorf("explain pipeline %q: %w", name, err)
		}
	}
	l, problems := planLayout(cfg, have, cfg.Server.MaxBytes, cfg.Server.MaxPayload)
	if problems != nil {
		return nil, problems
	}
	e := explainer{cfg: cfg, p: p, l: l, have: have}
	return []Section{
		{"reads", e.reads()}, {"steps", e.steps()}, {"publishes", e.publishes()}, {"settles", e.settles()},
		{"retry", retryWords(p)}, {"order", []string{e.order()}}, {"keeps", e.keeps()},
	}, nil
}

type explainer struct {
	cfg  *config.Config
	p    *config.Pipeline
	l    layout
	have []held
}

// streamOf is the stream that holds a subject, and whether it is ours.
func (e explainer) streamOf(s string) (string, bool) {
	for _, h := range e.have {
		if covered(h.subjects, s) {
			return h.name, h.ours
		}
	}
	for _, spec := range e.l.streams {
		if covered(spec.Subjects, s) {
			return spec.Name, true
		}
	}
	return "", false
}

func covered(subjects []string, s string) bool {
	return slices.ContainsFunc(subjects, func(f string) bool { return f == s || subject.Covers(f, s) })
}

func (e explainer) reads() []string {
	var lines []string
	for _, in := range e.l.inputs[e.p.Name] {
		var own []string
		for _, f := range in.filters {
			if f != in.redo {
				own = append(own, f)
			}
		}
		by := "consumer " + durable(e.p.Key())
		if e.p.Commit == "batch" {
			by = "a consumer that lives as long as the process"
		}
		line := fmt.Sprintf("%s from stream %s, by %s", strings.Join(own, ", "), in.stream, by)
		if in.redo == "" {
			line += "; the stream is not mqrun's and never changed"
		} else {
			line += "; replays come on " + in.redo
		}
		lines = append(lines, line)
	}
	start := map[string]string{
		"all": "the oldest message that is there", "new": "the first message after it was made",
		"time":     "the first message since " + e.p.Start.Time.UTC().Format(time.RFC3339),
		"sequence": fmt.Sprintf("message %d", e.p.Start.Sequence),
	}[e.p.Start.Policy]
	return append(lines, "a new consumer begins with "+start)
}

func (e explainer) steps() []string {
	var lines []string
	for i, s := range e.p.Steps {
		c := e.cfg.Plugins[s]
		lines = append(lines, fmt.Sprintf("%d. %s (%s), at most %s a call and %d MiB of memory", i+1, s, c.Module, c.Limits.Timeout, c.Limits.Memory>>20))
	}
	workers := "as many workers as cores"
	if e.p.Workers > 0 {
		workers = fmt.Sprintf("%d workers", e.p.Workers)
	}
	return append(lines, fmt.Sprintf("%s, at most %d messages in flight", workers, e.p.MaxInFlight))
}

func (e explainer) publishes() []string {
	var lines []string
	for _, s := range e.cfg.Publishes(e.p.Name) {
		stream, _ := e.streamOf(s)
		line := s + " to stream " + stream
		if s == e.p.To {
			line += ", where outputs without a subject go"
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return []string{"nothing"}
	}
	return lines
}

func (e explainer) settles() []string {
	if e.p.Commit == "batch" {
		return e.batch()
	}
	return []string{
		"commit: each: a message is acked once all its outputs are stored; repeated outputs have the same ids and are dropped within the duplicate window",
		fmt.Sprintf("after a crash others take its messages over when %s have passed (ack_wait)", e.p.AckWait),
	}
}

// batch says what `commit: batch` gives, and to what it does not reach.
func (e explainer) batch() []string {
	out := e.l.outputs[e.p.Name]
	lines := []string{
		"commit: batch: outputs, retries and the position are stored together in stream " + out + ", many messages at a time; each input's outputs are stored there exactly once, whatever crashes",
		fmt.Sprintf("a handler may run more often than once for a message, and may emit at most %d outputs", groupMessages-1),
		"outputs are stored in the order of the input, but for messages that are tried again: they wait in " + parkSubject(out, e.p.Key()) + ".>",
		fmt.Sprintf("one process runs it, by a lease; another one takes over within %s when it dies, and from its checkpoint", rounded(leaseTTL+leaseEvery)),
		"the position is in " + checkpointSubject(out, e.p.Key()) + "; should it be gone, or the input stream be made anew, mqrun batch set-position says where to go on",
	}
	if e.p.DeadLetter != config.DeadLetterNone {
		lines = append(lines, "a dead letter is stored before the position: after a crash it is stored again only when the window of its stream for ids is over")
	}
	if kv := e.cfg.Keeps(e.p); len(kv) > 0 {
		lines = append(lines, "what "+strings.Join(kv, ", ")+" stores in kv is outside of it: there it may happen more often than once")
	}
	return lines
}

// retryWords is the retry plan: the policy without its jitter.
func retryWords(p *config.Pipeline) []string {
	to := "dead letter to " + p.DeadLetter
	if p.DeadLetter == config.DeadLetterNone {
		to = "acked, counted and logged (dead_letter: none)"
	}
	lines := []string{"REJECT: at once " + to}
	if p.Retry.Attempts == 1 {
		return append(lines, "RETRY, a trap, a time-out, a limit: "+to+" after the only attempt")
	}
	spread := ""
	if p.Retry.Jitter > 0 {
		spread = fmt.Sprintf(" ±%.3g %%", 100*p.Retry.Jitter)
	}
	var total time.Duration
	var steps []string
	for attempt := 2; attempt <= p.Retry.Attempts; attempt++ {
		d := max(backoff(attempt-1, p.Retry, 0.5), minDelay)
		total += d
		switch {
		case attempt <= 4 || attempt == p.Retry.Attempts:
			steps = append(steps, fmt.Sprintf("attempt %d after %s%s", attempt, rounded(d), spread))
		case attempt == 5:
			steps = append(steps, "...")
		}
	}
	return append(lines,
		"RETRY, a trap, a time-out, a limit: "+strings.Join(steps, ", "),
		fmt.Sprintf("%s after attempt %d, about %s in all", to, p.Retry.Attempts, rounded(total)),
		"a guest may choose the delay of its RETRY; an output that cannot be stored is no attempt: it is published again until it is",
	)
}

// rounded drops what nobody plans with.
func rounded(d time.Duration) string {
	unit := time.Millisecond
	switch {
	case d >= time.Hour:
		unit = time.Minute
	case d >= time.Minute:
		unit = time.Second
	}
	s := d.Round(unit).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (e explainer) order() string {
	switch o := e.p.Order; {
	case o == config.OrderStrict:
		return "one message at a time, in the stream's order"
	case o == config.OrderSubject && e.p.Partitions > 1:
		return fmt.Sprintf("messages of one subject one after the other, in %d parts that the processes share out; a retry holds back its own subject alone", e.p.Partitions)
	case o == config.OrderSubject:
		return "messages of one subject one after the other; a retry holds back its own subject alone"
	case strings.HasPrefix(o, config.OrderHeader):
		return "messages with one value of the header " + strings.TrimPrefix(o, config.OrderHeader) + " one after the other; a retry holds back its own value alone"
	}
	return "none: a message that fails delays itself alone"
}

// keeps is what the janitor does in the streams of the pipeline.
func (e explainer) keeps() []string {
	var lines []string
	done := map[string]bool{}
	add := func(stream string, ours bool) {
		if stream == "" || done[stream] {
			return
		}
		done[stream] = true
		if !ours {
			lines = append(lines, stream+": not mqrun's; nothing is purged")
			return
		}
		keep := defaultKeep
		if s := e.cfg.Streams[stream]; s != nil && s.Keep > 0 {
			keep = s.Keep
		}
		lines = append(lines, fmt.Sprintf("%s: once it is %.0f %% full, what all its consumers have acked and what is older than %s (or twice the duplicate window) is purged", stream, 100*highWater, rounded(keep)))
	}
	for _, in := range e.l.inputs[e.p.Name] {
		add(in.stream, in.redo != "")
	}
	for _, s := range e.cfg.Publishes(e.p.Name) {
		stream, ours := e.streamOf(s)
		add(stream, ours)
		if ours && !e.isRead(s) {
			lines = append(lines, fmt.Sprintf("%s: no pipeline reads it; unless another durable does, the oldest go after %s, or when the stream is %.0f %% full", s, rounded(maxResultAge), 100*highWater))
		}
	}
	if e.p.DeadLetter != config.DeadLetterNone {
		lines = append(lines, "dead letters stay until they are replayed or purged; when their stream is full the pipeline waits")
	}
	return lines
}

func (e explainer) isRead(s string) bool {
	for _, p := range e.cfg.Pipelines {
		if slices.ContainsFunc(p.From, func(f string) bool { return subject.Overlap(f, s) }) {
			return true
		}
	}
	return false
}
