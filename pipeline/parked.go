package pipeline

import (
	"context"
	"errors"
	"maps"

	"github.com/nats-io/nats.go/jetstream"
)

// place is a message of a pipeline's input.
type place struct {
	pipeline, stream string
	sequence         uint64
}

// watch sets the inputs in which parked looks.
func (r *rescuer) watch(inputs map[string][]input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inputs = inputs
}

// parked finds messages that the server gave up while nobody listened. That
// can be known only of a work queue: there an acked message is gone, so what
// the consumer is through with was not acked. Other streams keep both alike.
//
// In a cluster an ack is seen before the message goes, so only those count
// that were seen a second ago as well. The others are returned.
func (r *rescuer) parked(ctx context.Context, before map[place]givenUp) map[place]givenUp {
	r.mu.Lock()
	inputs := maps.Clone(r.inputs)
	r.mu.Unlock()
	found := map[place]givenUp{}
	for name, ins := range inputs {
		for _, in := range ins {
			if err := r.parkedIn(ctx, name, in.stream, found); err != nil && ctx.Err() == nil {
				r.m.o.Logger.Warn("look for messages that the server gave up", "pipeline", name, "stream", in.stream, "error", err)
			}
		}
	}
	for at, g := range found {
		if _, ok := before[at]; ok {
			r.add(g)
			delete(found, at)
		}
	}
	return found
}

func (r *rescuer) parkedIn(ctx context.Context, pipeline, stream string, found map[place]givenUp) error {
	st, err := r.m.broker.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	if st.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy {
		return nil
	}
	c, err := st.Consumer(ctx, durable(pipeline))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	info := c.CachedInfo()
	floor := info.AckFloor.Stream
	if info.NumAckPending == 0 { // giving up does not move the floor
		floor = max(floor, info.Delivered.Stream)
	}
	filters := info.Config.FilterSubjects
	if info.Config.FilterSubject != "" {
		filters = []string{info.Config.FilterSubject}
	}
	for _, f := range filters {
		for seq := st.CachedInfo().State.FirstSeq; seq <= floor && len(found) < maxGivenUp; seq++ {
			m, err := st.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(f))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				return err
			}
			if seq = m.Sequence; seq > floor {
				break
			}
			found[place{pipeline, stream, seq}] = givenUp{
				pipeline: pipeline, stream: stream, sequence: seq, reason: reasonMaxDeliveries,
				why: durable(pipeline) + " is through with this message, and it is still in its work queue: it was given up, or never delivered",
			}
		}
	}
	return nil
}
