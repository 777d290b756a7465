package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/subject"
)

// A stream that is split stores its messages under
// mqrun.<STREAM>.part.<parts>.<part>.<subject>: the server has hashed the subject.
const splitTokens = 5

func splitPrefix(stream string) string { return "mqrun." + stream + ".part." }

// splitOf is the transform that splits a stream into n parts by subject.
func splitOf(stream, from string, n int) *jetstream.SubjectTransformConfig {
	tokens := strings.Split(from, ".")
	wild := 0
	for i, t := range tokens {
		if t == "*" {
			wild++
			tokens[i] = fmt.Sprintf("{{wildcard(%d)}}", wild)
		}
	}
	return &jetstream.SubjectTransformConfig{
		Source:      from,
		Destination: fmt.Sprintf("%s%d.{{partition(%d)}}.%s", splitPrefix(stream), n, n, strings.Join(tokens, ".")),
	}
}

// parts is into how many a transform of ours splits; 0: it is none.
func parts(stream string, t *jetstream.SubjectTransformConfig) int {
	if t == nil {
		return 0
	}
	rest, ok := strings.CutPrefix(t.Destination, splitPrefix(stream))
	n, _, _ := strings.Cut(rest, ".")
	count, err := strconv.Atoi(n)
	if !ok || err != nil {
		return 0
	}
	return count
}

// partFilter is what the consumer of one part reads.
func partFilter(stream string, of, n int, from string) string {
	return fmt.Sprintf("%s%d.%d.%s", splitPrefix(stream), of, n, from)
}

// anyPart is a filter's messages in all parts, whatever their number.
func anyPart(stream, filter string) string { return splitPrefix(stream) + "*.*." + filter }

// plain is the subject that a stored message was published to.
func plain(stream, s string) string {
	if !strings.HasPrefix(s, splitPrefix(stream)) {
		return s
	}
	for range splitTokens {
		_, s, _ = strings.Cut(s, ".")
	}
	return s
}

// partDurable is a part's consumer. No pipeline's name holds an underscore.
func partDurable(pipeline string, of, n int) string {
	return fmt.Sprintf("%s_%d_%d", durable(pipeline), of, n)
}

// pipelineOf is the pipeline of a durable, and of one of a part.
func pipelineOf(consumer string) (name string, ours bool) {
	name, ours = strings.CutPrefix(consumer, durable(""))
	name, _, _ = strings.Cut(name, "_")
	return name, ours
}

// split plans the transforms: a stream is split in one way, for good.
func (p *planner) split(pl *config.Pipeline, ins []input) {
	if pl.Partitions <= 1 {
		return
	}
	at := []string{"pipelines", pl.Name, "partitions"}
	switch {
	case len(ins) == 0: // told already
		return
	case len(ins) > 1:
		p.problem(fmt.Sprintf("partitions split one stream; from lies in %d", len(ins)), at)
		return
	case ins[0].redo == "":
		p.problem(fmt.Sprintf("partitions need a stream made by mqrun, to split it; %s is not", ins[0].stream), at)
		return
	}
	in := &ins[0]
	want := splitOf(in.stream, pl.From[0], pl.Partitions)
	have := p.splits[in.stream]
	for _, h := range p.have {
		if h.name == in.stream && h.split != nil {
			have = h.split
		}
	}
	if have != nil && *have != *want {
		p.problem(fmt.Sprintf("stream %s is split into %d parts by %q, and stays so: its messages lie there. Keep that, or give other subjects a stream of their own under streams:", in.stream, parts(in.stream, have), have.Source), at)
		return
	}
	if !slices.Contains(p.names, in.stream) {
		p.names = append(p.names, in.stream)
	}
	p.splits[in.stream] = want
	in.parts = pl.Partitions
}

// widen lets a pipeline that is not split itself read a stream that is.
func (p *planner) widen(pl *config.Pipeline, ins []input) {
	if pl.Partitions > 1 {
		return
	}
	for i := range ins {
		in := &ins[i]
		t := p.splits[in.stream]
		for _, h := range p.have {
			if h.name == in.stream && t == nil {
				t = h.split
			}
		}
		if parts(in.stream, t) == 0 {
			continue
		}
		in.split = true
		for _, f := range pl.From {
			if subject.Overlap(f, t.Source) {
				in.filters = append(in.filters, anyPart(in.stream, f))
			}
		}
	}
}

// original is what the guest sees as the subject: of a replayed message and of
// one in a part the one that it was published to.
func (src *source) original(m *nats.Msg) string {
	if src.redo != "" && m.Subject == src.redo {
		if orig := get(m.Header, hdrSubject); orig != "" {
			return orig
		}
	}
	return plain(src.stream, m.Subject)
}

// widenReaders lets the durables of other pipelines read the parts before there
// are any. A consumer that has come to the end of its subjects has passed all
// others too, and would not go back for them.
func widenReaders(ctx context.Context, js jetstream.JetStream, cfg *config.Config, l layout) error {
	for name, ins := range l.inputs {
		for _, in := range ins {
			if !in.split {
				continue
			}
			want := consumerConfig(cfg.Pipelines[name], in.filters)
			_, err := js.Consumer(ctx, in.stream, want.Durable)
			if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
				continue
			}
			if err == nil {
				_, err = ensureConsumer(ctx, js, in.stream, want)
			}
			if err != nil {
				return fmt.Errorf("let pipeline %s read the parts of stream %s: %w", name, in.stream, err)
			}
		}
	}
	return nil
}

// widen restarts pipelines whose input was split meanwhile.
func (p *Plan) widen(running map[string]engine, inputs map[string][]input) {
	moved := func(name string) bool {
		for _, in := range inputs[name] {
			if !in.split {
				continue
			}
			switch e := running[name].(type) {
			case *pipeline:
				if slices.ContainsFunc(e.sources, func(s *source) bool { return s.stream == in.stream && !slices.Equal(s.filters, in.filters) }) {
					return true
				}
			case *batch:
				if !slices.Equal(e.in.filters, in.filters) {
					return true
				}
			}
		}
		return false
	}
	for _, names := range []*[]string{&p.Keep, &p.Swap} {
		for _, name := range *names {
			if moved(name) {
				p.Restart = append(p.Restart, name)
			}
		}
		*names = slices.DeleteFunc(*names, moved)
	}
	slices.Sort(p.Restart)
}
