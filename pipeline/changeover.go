package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
)

// A pipeline whose `commit` changes goes on where it was: its position moves
// from the durable to the checkpoint, or back. The newer one of both counts, and
// the older one is removed only after.

// positionOfEach is up to where a pipeline has handled all of an input with
// `commit: each`; false when it never ran so.
func positionOfEach(ctx context.Context, js jetstream.JetStream, p *config.Pipeline, in input) (uint64, bool, error) {
	switch c, err := js.Consumer(ctx, in.stream, durable(p.Key())); {
	case err == nil:
		i := c.CachedInfo()
		if i.NumAckPending > 0 {
			return 0, false, fmt.Errorf("consumer %s has %d messages that are not settled: let `commit: each` finish them before the change to batch", i.Name, i.NumAckPending)
		}
		return max(i.AckFloor.Stream, i.Delivered.Stream), true, nil
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return 0, false, fmt.Errorf("consumer %s on stream %s: %w", durable(p.Key()), in.stream, err)
	}
	return 0, false, nil
}

// positionOfBatch is the checkpoint that a pipeline left in an input with
// `commit: batch`; its fence is 0 when it never ran so.
func (b *broker) positionOfBatch(ctx context.Context, id *identity, pipeline, stream string) (checkpoint, error) {
	e, err := b.state.Get(ctx, stateKey(pipeline))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return checkpoint{}, nil
	}
	if err != nil {
		return checkpoint{}, fmt.Errorf("read %s: %w", BucketState, err)
	}
	subject := string(e.Value())
	out := strings.Split(subject, ".")[1]
	c, err := readCheckpoint(ctx, b.js, out, subject)
	if err != nil || c.fence == 0 || c.Stream != stream || c.Created != id.made.UnixNano() {
		return checkpoint{}, err
	}
	waiting, err := readParked(ctx, b.js, out, parkSubject(out, pipeline), c)
	if err != nil {
		return checkpoint{}, err
	}
	if n := len(waiting); n > 0 {
		return checkpoint{}, fmt.Errorf("%d messages wait for their next attempt: let `commit: batch` finish them before the change to each", n)
	}
	// Written again, it fences off whoever still commits.
	return writeCheckpoint(ctx, b.js, b.state, pipeline, out, c.position, c.fence)
}

// forgetCheckpoint removes it: left there it would hold the janitor for ever.
func (b *broker) forgetCheckpoint(ctx context.Context, pipeline string, c checkpoint) error {
	st, err := b.js.Stream(ctx, strings.Split(c.subject, ".")[1])
	if err == nil {
		err = b.state.Purge(ctx, stateKey(pipeline))
	}
	if err == nil {
		err = st.Purge(ctx, jetstream.WithPurgeSubject(c.subject))
	}
	if err != nil {
		return fmt.Errorf("remove checkpoint %s: %w", c.subject, err)
	}
	return nil
}

// rememberedPosition is the one of BucketState, should the durable be gone.
func rememberedPosition(ctx context.Context, state jetstream.KeyValue, id *identity, key string) (r remembered, ok bool, err error) {
	e, err := state.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("remembered position in stream %s: %w", id.stream, err)
	}
	return r, true, nil
}
