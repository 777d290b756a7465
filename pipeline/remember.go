package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// rememberedRuns is how many runs of settled sequences are remembered above the
// floor: those beyond come again when the consumer is gone.
const rememberedRuns = 256

// remembered is what BucketState holds of a pipeline's position in one stream,
// for the day on which its consumer is gone before the pipeline runs again.
type remembered struct {
	Floor   uint64      `json:"floor"`
	Done    [][2]uint64 `json:"done,omitempty"` // settled above it, first and last
	Top     uint64      `json:"top"`
	Rewound []uint64    `json:"rewound,omitempty"`
	At      time.Time   `json:"at"`
}

func rememberKey(id *identity, pipeline, consumer string) string {
	return "position." + id.key + strings.TrimPrefix(consumer, durable(pipeline)) // _parts_part, of a part
}

// remember writes down where the pipeline is in an input. Nobody waits for it:
// it is out of date a moment later anyhow.
func (p *pipeline) remember(src *source) {
	p.mu.Lock()
	k := &src.known
	if k.made.IsZero() || k.top == 0 || src.ident.gone.Load() {
		p.mu.Unlock()
		return
	}
	r := remembered{Floor: k.floor, Top: k.top, Rewound: src.ident.rewound, At: p.now().UTC()}
	for _, run := range k.done[:min(len(k.done), rememberedRuns)] {
		r.Done = append(r.Done, [2]uint64{run.first, run.last})
	}
	key := rememberKey(src.ident, p.key, src.consumer)
	p.mu.Unlock()
	body, err := json.Marshal(r)
	if err == nil {
		err = p.broker.out.Publish("$KV."+BucketState+"."+key, body)
	}
	if err != nil {
		p.log.Debug("remember the position later", "stream", src.stream, "error", err)
	}
}

// recall is where the pipeline was in an input whose consumer is gone. It is
// false when there is one, and when nothing is known.
func (p *pipeline) recall(ctx context.Context, src *source, id *identity) (mark, []uint64, bool, error) {
	_, err := p.broker.js.Consumer(ctx, src.stream, src.consumer)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return mark{}, nil, false, nil // what else is wrong shows in a moment
	}
	var c checkpoint
	if p.part == nil {
		if c, err = p.broker.positionOfBatch(ctx, id, p.key, src.stream); err != nil {
			return mark{}, nil, false, err
		}
	}
	if c.fence != 0 {
		src.was = c
		p.log.Info("the pipeline goes on where it was with commit: batch", "stream", src.stream, "settled", c.Sequence)
		return mark{floor: c.Sequence, top: c.Sequence}, nil, true, nil
	}
	r, ok, err := rememberedPosition(ctx, p.broker.state, id, rememberKey(id, p.key, src.consumer))
	if err != nil || !ok {
		return mark{}, nil, false, err
	}
	k := mark{floor: r.Floor, top: r.Top}
	for _, d := range r.Done {
		k.done = append(k.done, run{d[0], d[1]})
	}
	p.log.Error("the consumer is gone; the pipeline goes on from what it remembers, and what it settled later comes again", "stream", src.stream, "settled", r.Floor, "at", r.At.Format(time.RFC3339))
	return k, r.Rewound, true, nil
}

// RemoveDurable deletes a durable and what is remembered of its position: a
// pipeline of that name begins anew.
func RemoveDurable(ctx context.Context, js jetstream.JetStream, d Durable) error {
	st, err := js.Stream(ctx, d.Stream)
	if err == nil {
		err = st.DeleteConsumer(ctx, d.Name)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("remove consumer %s of stream %s: %w", d.Name, d.Stream, err)
	}
	kv, err := js.KeyValue(ctx, BucketState)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err == nil {
		err = kv.Purge(ctx, rememberKey(newIdentity(d.Pipeline, d.Stream, st.CachedInfo().Created), d.Pipeline, d.Name))
	}
	if err != nil {
		return fmt.Errorf("forget the position of %s in stream %s: %w", d.Pipeline, d.Stream, err)
	}
	return nil
}
