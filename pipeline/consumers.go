package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Durable is a durable consumer of a pipeline, whether that is still configured
// or not.
type Durable struct {
	Stream   string `json:"stream"`
	Name     string `json:"name"`
	Pipeline string `json:"pipeline"`
	Pending  uint64 `json:"pending"` // not delivered yet
	Unacked  int    `json:"unacked"`
	Floor    uint64 `json:"ack_floor"` // the stream's sequence up to which all is acked
	Orphan   bool   `json:"orphan"`    // no pipeline of that name; it holds back the janitor
}

// Durables lists the durables of all pipelines on the server. known tells
// which pipelines there are.
func Durables(ctx context.Context, js jetstream.JetStream, known func(pipeline string) bool) ([]Durable, error) {
	have, err := heldStreams(ctx, js, 0)
	if err != nil {
		return nil, err
	}
	var all []Durable
	for _, h := range have {
		st, err := js.Stream(ctx, h.name)
		if err != nil {
			return nil, fmt.Errorf("consumers of stream %s: %w", h.name, err)
		}
		list := st.ListConsumers(ctx)
		for c := range list.Info() {
			name, ours := pipelineOf(c.Config.Durable)
			if !ours {
				continue
			}
			all = append(all, Durable{
				Stream: h.name, Name: c.Name, Pipeline: name, Pending: c.NumPending, Unacked: c.NumAckPending, Floor: c.AckFloor.Stream, Orphan: !known(name),
			})
		}
		if err := list.Err(); err != nil {
			return nil, fmt.Errorf("consumers of stream %s: %w", h.name, err)
		}
	}
	slices.SortFunc(all, func(a, b Durable) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Stream, b.Stream)) })
	return all, nil
}
