package mq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/subject"
)

// internal are the subjects of mqrun itself: checkpoints, parked retries. They
// lie among a stream's messages and must outlive them.
const internal = "mqrun.>"

// PurgeBelow removes the stream's messages on subjects that the filters match
// and whose sequence is below seq, and returns how many it removed. A filter
// that reaches `mqrun.>` is refused, but not one of `mqrun.<stream>.part.>`, where
// the messages of a stream that is split lie. After an error part of it may be done.
func PurgeBelow(ctx context.Context, js jetstream.JetStream, stream string, filters []string, seq uint64) (uint64, error) {
	var n uint64
	for _, f := range filters {
		if err := subject.ValidFilter(f); err != nil {
			return n, fmt.Errorf("purge stream %q: %w: %w", stream, ErrInvalidSubject, err)
		}
		if subject.Overlap(f, internal) && !strings.HasPrefix(f, "mqrun."+stream+".part.") {
			return n, fmt.Errorf("purge stream %q: %w: %q reaches %s", stream, ErrInvalidSubject, f, internal)
		}
	}
	if seq <= 1 {
		return 0, nil // to the server 0 is everything
	}
	for _, f := range filters {
		k, err := purge(ctx, js, stream, f, seq)
		n += k
		if err != nil {
			return n, fmt.Errorf("purge stream %q: %w", stream, err)
		}
	}
	return n, nil
}

// purge asks the server itself: the client library does not tell the count.
func purge(ctx context.Context, js jetstream.JetStream, stream, filter string, seq uint64) (uint64, error) {
	body, err := json.Marshal(jetstream.StreamPurgeRequest{Subject: filter, Sequence: seq})
	if err != nil {
		return 0, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute) // it reads the whole stream when the filter is narrow
		defer cancel()
	}
	m, err := js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+stream, body)
	if err != nil {
		return 0, err
	}
	var r struct {
		Error  *jetstream.APIError `json:"error"`
		Purged uint64              `json:"purged"`
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return 0, err
	}
	if r.Error != nil {
		return 0, r.Error
	}
	return r.Purged, nil
}

// PurgeAcked removes from the stream what all of its consumers have
// acknowledged and what is older than olderThan, and returns how many messages
// that were. filters limit it to some subjects; none is all of the stream's but
// `mqrun.>`. Without a consumer nothing is removed. A consumer that nobody uses
// any more holds everything that it has not seen.
//
// Do not use it on a stream that is read by an ephemeral consumer which keeps
// its position elsewhere.
func (e *EmbeddedNATS) PurgeAcked(ctx context.Context, stream string, olderThan time.Duration, filters ...string) (uint64, error) {
	n, err := e.purgeAcked(ctx, stream, olderThan, filters)
	if err != nil {
		return n, fmt.Errorf("purge acked messages of stream %q: %w", stream, err)
	}
	return n, nil
}

func (e *EmbeddedNATS) purgeAcked(ctx context.Context, stream string, olderThan time.Duration, filters []string) (uint64, error) {
	if err := e.use(); err != nil {
		return 0, err
	}
	defer e.inUse.Done()
	st, err := e.js.Stream(ctx, stream) // its state is taken before the consumers', see ackFloor
	if err != nil {
		return 0, err
	}
	info := st.CachedInfo()
	if len(filters) == 0 {
		for _, s := range info.Config.Subjects {
			if !subject.Overlap(s, internal) {
				filters = append(filters, s)
			}
		}
	}
	floor, err := ackFloor(ctx, st, info.State.LastSeq)
	if err != nil || floor == 0 {
		return 0, err
	}
	below, err := FirstSince(ctx, st, info.State.FirstSeq, floor+1, time.Now().Add(-olderThan))
	if err != nil {
		return 0, err
	}
	return PurgeBelow(ctx, e.js, stream, filters, below)
}

// ackFloor is the sequence up to which every consumer has acknowledged what it
// is to get; 0 without consumers. last is a sequence that was the stream's last
// before the consumers are asked: one that has nothing to do is through with
// it, while its own floor stays at the last message that matched its filter.
func ackFloor(ctx context.Context, st jetstream.Stream, last uint64) (uint64, error) {
	floor, any := last, false
	list := st.ListConsumers(ctx)
	for c := range list.Info() {
		any = true
		switch {
		case c.NumAckPending > 0:
			floor = min(floor, c.AckFloor.Stream)
		case c.NumPending > 0:
			floor = min(floor, max(c.AckFloor.Stream, c.Delivered.Stream))
		}
	}
	if err := list.Err(); err != nil {
		return 0, err
	}
	if !any {
		return 0, nil
	}
	return floor, nil
}

// FirstSince returns the lowest sequence in [first, end) whose message was
// stored at t or later, or end. It halves its way there: the server has no
// question for it.
func FirstSince(ctx context.Context, st jetstream.Stream, first, end uint64, t time.Time) (uint64, error) {
	for first < end {
		mid := first + (end-first)/2
		m, err := st.GetMsg(ctx, mid, jetstream.WithGetMsgSubject(">")) // mid or, if it is gone, the next
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			end = mid
		case err != nil:
			return 0, err
		case m.Time.Before(t):
			first = max(m.Sequence, mid) + 1
		default:
			end = mid
		}
	}
	return min(first, end), nil
}
