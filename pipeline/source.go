package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

// source is one input stream of a pipeline with the durable consumer on it.
type source struct {
	stream   string
	filters  []string
	consumer string
	redo     string // subject on which replayed messages of this pipeline arrive, "" on a foreign stream
	pull     *mq.Pull
	was      checkpoint // of `commit: batch`, to be removed once the durable is there

	// Guarded by the pipeline's mutex:
	ident   *identity
	known   mark
	busy    int  // slots that hold its messages
	fresh   bool // of a stream that was made anew, and not pulled from yet
	mending bool // somebody looks after its consumer

	// Of an ordered pipeline, guarded by its mutex:
	next uint64    // place of the next delivery in the consumer
	top  uint64    // highest stream sequence delivered
	back *recovery // nil: nothing is missing
}

// durable is the name of a pipeline's consumer on each of its input streams.
func durable(pipeline string) string { return "mqrun-" + pipeline }

// maxAckPending is far above what is in flight: with a small one, a few
// messages that wait for their retry would stop all healthy ones.
const maxAckPending = 100_000

const metaGeneration = "mqrun-generation"

// consumerConfig is the durable that a pipeline wants on a stream. Attempts
// and back-off are the host's: the server's own replace ack_wait silently and
// park the message for ever.
func consumerConfig(p *config.Pipeline, filters []string) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable: durable(p.Key()), AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.AckWait,
		MaxDeliver: -1, MaxAckPending: maxAckPending, FilterSubjects: filters,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		Metadata:      map[string]string{metaGeneration: "1"},
	}
	switch p.Start.Policy {
	case "new":
		c.DeliverPolicy = jetstream.DeliverNewPolicy
	case "time":
		t := p.Start.Time
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &t
	case "sequence":
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, p.Start.Sequence
	}
	return c
}

// ensureConsumer makes the durable or brings ack_wait and filters of an
// existing one up to date. Where it starts was decided when it was made and
// stays: the server cannot change it and mqrun never throws a position away.
func ensureConsumer(ctx context.Context, js jetstream.JetStream, stream string, want jetstream.ConsumerConfig) (*jetstream.ConsumerInfo, error) {
	c, err := js.Consumer(ctx, stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = js.CreateConsumer(ctx, stream, want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process was faster
			c, err = js.Consumer(ctx, stream, want.Durable)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s on stream %s: %w", want.Durable, stream, err)
	}
	have := c.CachedInfo().Config
	filters := have.FilterSubjects
	if have.FilterSubject != "" {
		filters = []string{have.FilterSubject}
	}
	if have.AckPolicy != jetstream.AckExplicitPolicy {
		return nil, fmt.Errorf("consumer %s on stream %s has ack policy %s, mqrun needs explicit: remove it or rename the pipeline", want.Durable, stream, have.AckPolicy)
	}
	slices.Sort(filters)
	sorted := slices.Sorted(slices.Values(want.FilterSubjects))
	if have.AckWait == want.AckWait && have.MaxDeliver == want.MaxDeliver && have.MaxAckPending == want.MaxAckPending &&
		len(have.BackOff) == 0 && reflect.DeepEqual(filters, sorted) {
		return c.CachedInfo(), nil
	}
	generation, _ := strconv.Atoi(have.Metadata[metaGeneration])
	have.AckWait, have.MaxDeliver, have.MaxAckPending, have.BackOff = want.AckWait, want.MaxDeliver, want.MaxAckPending, nil
	have.FilterSubject, have.FilterSubjects = "", want.FilterSubjects
	have.Metadata = maps.Clone(have.Metadata)
	if have.Metadata == nil {
		have.Metadata = map[string]string{}
	}
	have.Metadata[metaGeneration] = strconv.Itoa(generation + 1)
	if c, err = js.UpdateConsumer(ctx, stream, have); err != nil {
		return nil, fmt.Errorf("update consumer %s on stream %s: %w", want.Durable, stream, err)
	}
	return c.CachedInfo(), nil
}

// input is what a pipeline needs to know of one of its input streams.
type input struct {
	stream  string
	created time.Time
	filters []string
	redo    string
	maxMsg  int64 // largest message that the stream takes
	parts   int   // into which the pipeline splits the stream; 0: it does not
	split   bool  // the stream is, for other pipelines
}
