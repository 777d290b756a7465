package mq

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// EnsureBucket makes a KV bucket of ours, or sizes it anew: its share changes
// with the store's. Where it is kept and on how many servers was decided when
// it was made.
func EnsureBucket(ctx context.Context, js jetstream.JetStream, want jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := ensureBucket(ctx, js, want)
	if err != nil {
		return nil, fmt.Errorf("make bucket %s: %w", want.Bucket, Explain(js.Conn(), err))
	}
	return kv, nil
}

func ensureBucket(ctx context.Context, js jetstream.JetStream, want jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, want.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = placed(ctx, want.Replicas, func() (jetstream.KeyValue, error) { return js.CreateKeyValue(ctx, want) })
		if errors.Is(err, jetstream.ErrBucketExists) { // made by another process in between
			kv, err = js.KeyValue(ctx, want.Bucket)
		}
	}
	if err != nil {
		return nil, err
	}
	st, err := kv.Status(ctx)
	if err != nil {
		return nil, err
	}
	s, ok := st.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return kv, nil
	}
	have := s.StreamInfo().Config
	if have.MaxAge == want.TTL && (want.MaxBytes == 0 || have.MaxBytes == want.MaxBytes) {
		return kv, nil
	}
	want.Replicas, want.Storage = have.Replicas, have.Storage
	return js.UpdateKeyValue(ctx, want)
}
