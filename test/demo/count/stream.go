package count

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumers are the demo's: the stream that each reads is found by its subject.
var consumers = []struct{ pipeline, reads string }{{"parse", Ingest}, {"classify", Parsed}, {"alert", Strong}}

// streamOf opens the stream that holds a subject.
func streamOf(ctx context.Context, js jetstream.JetStream, subject string) (jetstream.Stream, error) {
	name, err := js.StreamNameBySubject(ctx, subject)
	if err != nil {
		return nil, fmt.Errorf("find the stream of %s: %w", subject, err)
	}
	st, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open the stream of %s: %w", subject, err)
	}
	return st, nil
}

func consumerOf(ctx context.Context, js jetstream.JetStream, pipeline, reads string) (*jetstream.ConsumerInfo, error) {
	st, err := streamOf(ctx, js, reads)
	if err != nil {
		return nil, err
	}
	c, err := st.Consumer(ctx, "mqrun-"+pipeline)
	if err != nil {
		return nil, fmt.Errorf("ask for the consumer of %s: %w", pipeline, err)
	}
	return c.CachedInfo(), nil
}

// Settled waits until every input is published and every pipeline has acked
// all that it was given, first to last. The server tells nobody when a consumer
// runs dry, so it is asked again and again.
func Settled(ctx context.Context, js jetstream.JetStream, e *Expected) error {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		why, err := unsettled(ctx, js, e)
		if err != nil || why == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the pipelines: %s: %w", why, ctx.Err())
		case <-t.C:
		}
	}
}

func unsettled(ctx context.Context, js jetstream.JetStream, e *Expected) (string, error) {
	st, err := streamOf(ctx, js, Ingest)
	if err != nil {
		return "", err
	}
	if n := st.CachedInfo().State.Msgs; n < uint64(e.Inputs()) {
		return fmt.Sprintf("%d of %d messages are published", n, e.Inputs()), nil
	}
	for _, c := range consumers {
		info, err := consumerOf(ctx, js, c.pipeline, c.reads)
		if err != nil {
			return "", err
		}
		if n := info.NumPending + uint64(info.NumAckPending); n > 0 {
			return fmt.Sprintf("pipeline %s has %d messages to do", c.pipeline, n), nil
		}
	}
	return "", nil
}

// held is one message of a stream.
type held struct {
	subject, id string // id: its Nats-Msg-Id
	origin      string // of a dead letter: the Nats-Msg-Id that the message had
	reason      string // of a dead letter
	sequence    uint64
	data        []byte
}

// contents reads the subjects of one stream, and the start of the ids of what
// was made from its messages: <stream>:<creation>.
func contents(ctx context.Context, js jetstream.JetStream, subjects ...string) (all []held, prefix string, err error) {
	st, err := streamOf(ctx, js, subjects[0])
	if err != nil {
		return nil, "", err
	}
	info := st.CachedInfo()
	prefix = info.Config.Name + ":" + strconv.FormatInt(info.Created.UnixNano(), 36)
	c, err := st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: subjects})
	if err != nil {
		return nil, "", fmt.Errorf("read %v: %w", subjects, err)
	}
	left := c.CachedInfo().NumPending
	if left == 0 {
		return nil, prefix, nil
	}
	messages, err := c.Messages()
	if err != nil {
		return nil, "", fmt.Errorf("read %v: %w", subjects, err)
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, "", fmt.Errorf("read %v: %w", subjects, errors.Join(err, ctx.Err()))
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, "", fmt.Errorf("read %v: %w", subjects, err)
		}
		h := m.Headers()
		all = append(all, held{m.Subject(), h.Get("Nats-Msg-Id"), h.Get("Mqrun-Original-Nats-Msg-Id"), h.Get("Mqrun-Reason"), meta.Sequence.Stream, m.Data()})
	}
	return all, prefix, nil
}
