package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
)

// SetPosition says where a pipeline with `commit: batch` goes on: behind the
// message with the sequence, 0 for the first one. It is the cure for a
// checkpoint that is gone or belongs to another stream, which the pipeline
// never makes up by itself. The pipeline must not run: one that does loses its
// fence and stops. It returns the input stream, and the position that was
// there, 0 when there was none.
func SetPosition(ctx context.Context, js jetstream.JetStream, cfg *config.Config, name string, sequence uint64) (stream string, was uint64, err error) {
	if p := cfg.Pipelines[name]; p == nil || p.Commit != "batch" {
		return "", 0, fmt.Errorf("set position: %q is no pipeline with commit: batch", name)
	}
	have, err := heldStreams(ctx, js, cfg.Server.MaxPayload)
	if err != nil {
		return "", 0, fmt.Errorf("set position of %s: %w", name, err)
	}
	l, problems := planLayout(cfg, have, cfg.Server.MaxBytes, cfg.Server.MaxPayload)
	if problems != nil {
		return "", 0, problems
	}
	in, out := l.inputs[name][0], l.outputs[name]
	if in.created.IsZero() {
		return "", 0, fmt.Errorf("set position of %s: stream %s is not there yet", name, in.stream)
	}
	st, err := js.Stream(ctx, in.stream)
	if err != nil {
		return "", 0, fmt.Errorf("set position of %s: stream %s: %w", name, in.stream, err)
	}
	if last := st.CachedInfo().State.LastSeq; sequence > last {
		return "", 0, fmt.Errorf("set position of %s: stream %s ends at %d", name, in.stream, last)
	}
	key := cfg.Pipelines[name].Key()
	old, err := readCheckpoint(ctx, js, out, checkpointSubject(out, key))
	if err != nil {
		return "", 0, fmt.Errorf("set position of %s: %w", name, err)
	}
	state, err := js.KeyValue(ctx, BucketState)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return "", 0, fmt.Errorf("set position of %s: the pipeline never ran here", name)
	}
	if err != nil {
		return "", 0, fmt.Errorf("set position of %s: %w", name, err)
	}
	p := position{Stream: in.stream, Created: in.created.UnixNano(), Sequence: sequence}
	if _, err := writeCheckpoint(ctx, js, state, key, out, p, old.fence); err != nil {
		return "", 0, fmt.Errorf("set position of %s: %w", name, err)
	}
	return in.stream, old.Sequence, nil
}
