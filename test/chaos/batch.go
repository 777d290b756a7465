package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What a stream is read for, and where a pipeline publishes.
var (
	subjectOf = map[string]string{inStream: "ingest.x", midStream: "mid.x"}
	outputOf  = map[string]string{"first": midStream, "second": outStream}
)

// checkpoint is how far a pipeline is in its input stream. One of an earlier
// stream of the same name is worth nothing.
func (b *bench) checkpoint(ctx context.Context, st jetstream.Stream, pipeline string) (uint64, error) {
	out, err := b.js.Stream(ctx, outputOf[pipeline])
	if err != nil {
		return 0, err
	}
	var c struct {
		Created  int64
		Sequence uint64
	}
	m, err := out.GetLastMsgForSubject(ctx, "mqrun."+outputOf[pipeline]+".ckpt."+pipeline+".0")
	if err == nil {
		err = json.Unmarshal(m.Data, &c)
	}
	if err != nil {
		return 0, fmt.Errorf("checkpoint of %s: %w", pipeline, err)
	}
	if c.Created != st.CachedInfo().Created.UnixNano() {
		return 0, fmt.Errorf("the checkpoint of %s is of another stream", pipeline)
	}
	return c.Sequence, nil
}

// parked is how many messages of a pipeline wait for their next attempt; marks
// that one is done do not count.
func (b *bench) parked(ctx context.Context, pipeline string) (n int, err error) {
	out, err := b.js.Stream(ctx, outputOf[pipeline])
	if err != nil {
		return 0, err
	}
	i, err := out.Info(ctx, jetstream.WithSubjectFilter("mqrun."+outputOf[pipeline]+".retry."+pipeline+".0.>"))
	if err != nil {
		return 0, err
	}
	for s := range i.State.Subjects {
		m, err := out.GetLastMsgForSubject(ctx, s)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return 0, err
		case m.Header.Get("Mqrun-Due") != "":
			n++
		}
	}
	return n, nil
}

func openOfCheckpoint(ctx context.Context, b *bench, stream, pipeline string) (pending, unacked int, err error) {
	st, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, 0, err
	}
	at, err := b.checkpoint(ctx, st, pipeline)
	if err != nil {
		return 0, 0, err
	}
	m, err := st.GetLastMsgForSubject(ctx, subjectOf[stream])
	switch {
	case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, 0, err
	case err == nil && m.Sequence > at:
		return int(m.Sequence - at), 0, nil
	}
	unacked, err = b.parked(ctx, pipeline)
	return 0, unacked, err
}

func checkpointFloor(ctx context.Context, b *bench, stream, pipeline string) (uint64, error) {
	st, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return b.checkpoint(ctx, st, pipeline)
}

// setPosition lets a pipeline begin with a stream that was made anew, once it is
// there.
func (b *bench) setPosition(ctx context.Context, pipeline string) error {
	for {
		out, err := exec.CommandContext(ctx, b.bin, "batch", "set-position", pipeline, "0", "-c", b.config(), "-s", b.url).CombinedOutput()
		if err == nil {
			return nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("set position: %w: %s", err, out)
		}
	}
}
