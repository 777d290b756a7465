package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

// maxBuckets of plugins: each has the same part of what mqrun's own buckets
// leave of the store's share for them.
const maxBuckets = 16

// store is the KV buckets of allow.kv over JetStream, as host.KV.
type store struct {
	js       jetstream.JetStream
	replicas int
	open     sync.Map // jetstream.KeyValue by name
}

var _ host.KV = (*store)(nil)

// ensure makes the buckets that cfg names and that are not there. Those that
// are stay as they are.
func (s *store) ensure(ctx context.Context, cfg *config.Config, maxBytes int64) config.Problems {
	var problems config.Problems
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Plugins)) {
		for _, bucket := range cfg.Plugins[name].Allow.KV {
			if known[bucket] {
				continue
			}
			known[bucket] = true
			if len(known) > maxBuckets {
				problems = append(problems, cfg.Problem(fmt.Sprintf("more than %d buckets; share one among plugins and tell its keys apart", maxBuckets), "", "plugins", name, "allow", "kv"))
				return problems
			}
			if err := s.make(ctx, bucket, mq.Budget(maxBytes, 1).KV*4/10/maxBuckets); err != nil {
				problems = append(problems, cfg.Problem(err.Error(), "", "plugins", name, "allow", "kv"))
			}
		}
	}
	return problems
}

func (s *store) make(ctx context.Context, bucket string, maxBytes int64) error {
	_, err := s.bucket(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: bucket, Description: "of plugins (allow.kv)", History: 1, Storage: jetstream.FileStorage, MaxBytes: maxBytes, Replicas: s.replicas,
		})
	}
	if err != nil {
		return fmt.Errorf("make bucket %s: %w", bucket, err)
	}
	return nil
}

func (s *store) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	if kv, ok := s.open.Load(name); ok {
		return kv.(jetstream.KeyValue), nil
	}
	kv, err := s.js.KeyValue(ctx, name)
	if err != nil {
		return nil, err
	}
	s.open.Store(name, kv)
	return kv, nil
}

func (s *store) Get(ctx context.Context, bucket, key string) ([]byte, uint64, error) {
	kv, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, 0, err
	}
	e, err := kv.Get(ctx, key)
	if err != nil {
		return nil, 0, kvError(err)
	}
	return e.Value(), e.Revision(), nil
}

func (s *store) Put(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	return s.write(ctx, bucket, func(kv jetstream.KeyValue) (uint64, error) { return kv.Put(ctx, key, value) })
}

func (s *store) Create(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	return s.write(ctx, bucket, func(kv jetstream.KeyValue) (uint64, error) { return kv.Create(ctx, key, value) })
}

func (s *store) Update(ctx context.Context, bucket, key string, value []byte, revision uint64) (uint64, error) {
	return s.write(ctx, bucket, func(kv jetstream.KeyValue) (uint64, error) { return kv.Update(ctx, key, value, revision) })
}

func (s *store) Delete(ctx context.Context, bucket, key string) error {
	_, err := s.write(ctx, bucket, func(kv jetstream.KeyValue) (uint64, error) { return 0, kv.Delete(ctx, key) })
	return err
}

func (s *store) write(ctx context.Context, bucket string, do func(jetstream.KeyValue) (uint64, error)) (uint64, error) {
	kv, err := s.bucket(ctx, bucket)
	if err != nil {
		return 0, err
	}
	revision, err := do(kv)
	return revision, kvError(err)
}

// Codes of the server that the client has no names for.
const (
	codeMaxBytes = 10077 // "maximum bytes exceeded"
	codeTooLarge = 10054 // "message size exceeds maximum allowed"
	codeNoSpace  = 10047 // "insufficient storage resources available"
)

// kvError names what a guest can do something about.
func kvError(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted):
		return host.ErrKVAbsent
	case errors.Is(err, jetstream.ErrKeyExists):
		return host.ErrKVConflict
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", host.ErrKVLimit, err)
	case errors.As(err, &api):
		switch api.ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence:
			return host.ErrKVConflict
		case codeMaxBytes, codeTooLarge, codeNoSpace:
			return fmt.Errorf("%w: %w", host.ErrKVLimit, err)
		}
	}
	return err
}
