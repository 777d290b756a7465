package pipeline

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/subject"
)

// Tail is how the messages of a subject are read from one stream.
type Tail struct {
	Stream string
	Start  uint64 // sequence of the first message
}

// Tails finds the streams that hold a subject, and where the last n of its
// messages begin in each; with n = 0 where the next one will be.
func Tails(ctx context.Context, js jetstream.JetStream, s string, n int) ([]Tail, error) {
	have, err := heldStreams(ctx, js, 0)
	if err != nil {
		return nil, err
	}
	var tails []Tail
	for _, h := range have {
		overlaps := false
		for _, f := range h.subjects {
			overlaps = overlaps || subject.Overlap(f, s)
		}
		if !overlaps {
			continue
		}
		start, err := lastOf(ctx, js, h.name, s, n)
		if err != nil {
			return nil, fmt.Errorf("messages of %s in stream %s: %w", s, h.name, err)
		}
		tails = append(tails, Tail{h.name, start})
	}
	return tails, nil
}

// lastOf looks further back, twice as far each time, until n messages of the
// subject are there, and then forward for the first of them.
func lastOf(ctx context.Context, js jetstream.JetStream, stream, s string, n int) (uint64, error) {
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	state := st.CachedInfo().State
	next := state.LastSeq + 1
	if n <= 0 || state.Msgs == 0 {
		return next, nil
	}
	// from reports how many messages of the subject there are from seq on.
	from := func(seq uint64) (int, error) {
		c, err := st.CreateConsumer(ctx, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckNonePolicy, FilterSubjects: []string{s}, MemoryStorage: true, Replicas: 1,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq,
		})
		if err != nil {
			return 0, err
		}
		info := c.CachedInfo()
		return int(info.NumPending), st.DeleteConsumer(ctx, info.Name)
	}
	var low uint64
	for back := uint64(n); ; back *= 2 {
		if low = state.FirstSeq; next-state.FirstSeq > back {
			low = next - back
		}
		have, err := from(low)
		if err != nil {
			return 0, err
		}
		if have >= n || low == state.FirstSeq {
			break
		}
	}
	for high := next; high-low > 1; { // from(low) >= n, or all there is
		middle := low + (high-low)/2
		have, err := from(middle)
		if err != nil {
			return 0, err
		}
		if have >= n {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}
