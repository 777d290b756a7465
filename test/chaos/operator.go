package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// operator does what people do to a running system: delete consumers under
// load, purge what was read, delete a stream and make it anew.
func operator(ctx context.Context, b *bench) error {
	if err := b.serve("store"); err != nil {
		return err
	}
	if _, err := b.run(ctx); err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	round := 0
	return b.repeat(ctx, func() error {
		round++
		if round%5 == 0 {
			return b.anew(ctx)
		}
		at := [][2]string{{inStream, "first"}, {midStream, "second"}}[b.random.IntN(2)]
		if b.random.IntN(3) == 0 {
			return b.purge(ctx, at[0], at[1])
		}
		return b.orphan(ctx, at[0])
	})
}

// orphan deletes all consumers of a stream.
func (b *bench) orphan(ctx context.Context, stream string) error {
	st, err := b.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	names := st.ConsumerNames(ctx)
	for name := range names.Name() {
		if err := st.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return names.Err()
}

// purge removes what the pipeline is through with. The middle stream is
// counted at the end, so only the input is purged for good.
func (b *bench) purge(ctx context.Context, stream, pipeline string) error {
	if stream != inStream {
		return nil
	}
	floor, err := b.way.floor(ctx, b, stream, pipeline)
	if err != nil {
		return nil //nolint:nilerr // its consumer is being made again
	}
	st, err := b.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	return st.Purge(ctx, jetstream.WithPurgeSequence(floor+1))
}

// anew deletes the input stream once everything that is confirmed is settled,
// and lets mqrun or ourselves make it again. The feed goes on meanwhile: what is
// confirmed in between is waited for too, so it is held first.
func (b *bench) anew(ctx context.Context) error {
	b.pause.Lock()
	defer b.pause.Unlock()
	if err := b.settled(ctx); err != nil {
		return err
	}
	st, err := b.js.Stream(ctx, inStream)
	if err != nil {
		return err
	}
	cfg := st.CachedInfo().Config
	if err := b.js.DeleteStream(ctx, inStream); err != nil {
		return fmt.Errorf("delete stream: %w", err)
	}
	if b.random.IntN(2) == 0 {
		if _, err = b.js.CreateStream(ctx, cfg); err != nil {
			return err
		}
	}
	return b.way.renewed(ctx, b, "first")
}
