package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

// BucketState remembers what must not be forgotten: that a checkpoint was once
// written.
const BucketState = "MQRUN_STATE"

// partition ends the names of what a batch pipeline keeps: it has one.
const partition = "0"

// position is the body of a checkpoint: everything up to Sequence of the
// stream that was created at Created is handled.
type position struct {
	Stream   string `json:"stream"`
	Created  int64  `json:"created"` // unix ns
	Sequence uint64 `json:"sequence"`
	Batch    string `json:"batch,omitempty"` // id of the atomic batch that wrote it
}

// checkpoint is where a batch pipeline is in its input. It lies in the output
// stream, as the last message of each atomic batch, so that it moves together
// with the outputs or not at all. Its own sequence is the fence: a commit
// expects the checkpoint that the committer knows.
type checkpoint struct {
	subject string
	position
	fence uint64
}

func checkpointSubject(out, pipeline string) string {
	return "mqrun." + out + ".ckpt." + pipeline + "." + partition
}

// message is the checkpoint at sequence. It replaces the one before and never
// expires; with the expected sequence 0 an expired one would be made anew.
func (c *checkpoint) message(sequence uint64, batch string) (*nats.Msg, error) {
	p := c.position
	p.Sequence, p.Batch = sequence, batch
	body, err := json.Marshal(p)
	return &nats.Msg{Subject: c.subject, Data: body, Header: nats.Header{
		"Nats-Rollup": {"sub"}, "Nats-TTL": {"never"},
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(c.fence, 10)},
	}}, err
}

// read is the checkpoint as the stream has it; fence 0 when there is none.
func readCheckpoint(ctx context.Context, js jetstream.JetStream, out, subject string) (checkpoint, error) {
	c := checkpoint{subject: subject}
	st, err := js.Stream(ctx, out)
	if err != nil {
		return c, fmt.Errorf("read checkpoint: stream %s: %w", out, err)
	}
	m, err := st.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read checkpoint %s: %w", subject, err)
	}
	if err := json.Unmarshal(m.Data, &c.position); err != nil {
		return c, fmt.Errorf("read checkpoint %s: %w", subject, err)
	}
	c.fence = m.Sequence
	return c, nil
}

// stateKey is where BucketState remembers a checkpoint.
func stateKey(pipeline string) string {
	return "checkpoint." + pipeline + "." + partition
}

// openCheckpoint finds where a batch pipeline goes on. A checkpoint that was
// there and is not, or that belongs to an earlier stream of the same name, is
// no reason to start from 1: that would do everything again.
func openCheckpoint(ctx context.Context, js jetstream.JetStream, state jetstream.KeyValue, p *config.Pipeline, in input, out string) (checkpoint, error) {
	subject := checkpointSubject(out, p.Key())
	c, err := readCheckpoint(ctx, js, out, subject)
	if err != nil {
		return c, err
	}
	cure := fmt.Sprintf("find out what happened, then say where it goes on: mqrun batch set-position %s SEQUENCE", p.Name)
	if c.fence != 0 {
		if c.Created != in.created.UnixNano() || c.Stream != in.stream {
			return c, fmt.Errorf("the checkpoint is of stream %s made at %s, but stream %s was made at %s; %s", c.Stream, time.Unix(0, c.Created).UTC().Format(time.RFC3339), in.stream, in.created.UTC().Format(time.RFC3339), cure)
		}
		st, err := js.Stream(ctx, in.stream)
		if err != nil {
			return c, fmt.Errorf("stream %s: %w", in.stream, err)
		}
		if last := st.CachedInfo().State.LastSeq; c.Sequence > last {
			return c, fmt.Errorf("the checkpoint is at message %d, but stream %s ends at %d: it has lost its last %d messages (a power cut, or an older copy), and as many new ones would be skipped; %s", c.Sequence, in.stream, last, c.Sequence-last, cure)
		}
		at, ok, err := positionOfEach(ctx, js, p, in)
		if err != nil || !ok || at <= c.Sequence {
			return c, err
		}
		return writeCheckpoint(ctx, js, state, p.Key(), out, position{Stream: c.Stream, Created: c.Created, Sequence: at}, c.fence)
	}
	switch _, err := state.Get(ctx, stateKey(p.Key())); {
	case err == nil:
		return c, fmt.Errorf("the checkpoint %s is gone; %s", subject, cure)
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return c, fmt.Errorf("read %s: %w", BucketState, err)
	}
	first, err := firstPosition(ctx, js, state, p, in)
	if err != nil {
		return c, err
	}
	return writeCheckpoint(ctx, js, state, p.Key(), out, position{Stream: in.stream, Created: in.created.UnixNano(), Sequence: first}, 0)
}

// writeCheckpoint puts a checkpoint where fence is the sequence of the last
// one, outside of a batch.
func writeCheckpoint(ctx context.Context, js jetstream.JetStream, state jetstream.KeyValue, pipeline, out string, p position, fence uint64) (checkpoint, error) {
	c := checkpoint{subject: checkpointSubject(out, pipeline), position: p, fence: fence}
	m, err := c.message(p.Sequence, "")
	if err != nil {
		return c, err
	}
	ack, err := js.PublishMsg(ctx, m)
	if err != nil {
		return c, fmt.Errorf("write checkpoint %s: %w", c.subject, err)
	}
	c.fence = ack.Sequence
	if _, err := state.PutString(ctx, stateKey(pipeline), c.subject); err != nil {
		return c, fmt.Errorf("remember checkpoint in %s: %w", BucketState, err)
	}
	return c, nil
}

// firstPosition is the last sequence that a pipeline which has no checkpoint
// skips: of `commit: each` when it ran so before, else as `start` says.
func firstPosition(ctx context.Context, js jetstream.JetStream, state jetstream.KeyValue, p *config.Pipeline, in input) (uint64, error) {
	if at, ok, err := positionOfEach(ctx, js, p, in); err != nil || ok {
		return at, err
	}
	id := newIdentity(p.Key(), in.stream, in.created)
	r, ok, err := rememberedPosition(ctx, state, id, rememberKey(id, p.Key(), durable(p.Key())))
	switch {
	case err != nil:
		return 0, err
	case ok && len(r.Done)+len(r.Rewound) > 0:
		return 0, fmt.Errorf("consumer %s of stream %s is gone, and messages above %d were settled out of order: let `commit: each` finish before the change to batch", durable(p.Key()), in.stream, r.Floor)
	case ok:
		return r.Floor, nil
	}
	st, err := js.Stream(ctx, in.stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", in.stream, err)
	}
	have := st.CachedInfo().State
	switch p.Start.Policy {
	case "new":
		return have.LastSeq, nil
	case "sequence":
		return max(p.Start.Sequence, 1) - 1, nil
	case "time":
		seq, err := mq.FirstSince(ctx, st, have.FirstSeq, have.LastSeq+1, p.Start.Time)
		if err != nil {
			return 0, fmt.Errorf("stream %s: %w", in.stream, err)
		}
		return max(seq, 1) - 1, nil
	}
	return 0, nil
}
