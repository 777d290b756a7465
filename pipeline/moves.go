package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/subject"
)

// Move is a subject that lies in another stream of ours than a new store would
// put it into. It stays there: a consumer whose filter left its stream would
// go on silently.
type Move struct {
	Subject  string `json:"subject"`
	From     string `json:"from"`
	To       string `json:"to"` // "" when the configuration has no use for it
	Messages uint64 `json:"messages"`
}

// Moves compares the streams that are there with those that cfg would get on a
// new store. Nothing is changed.
func Moves(ctx context.Context, js jetstream.JetStream, cfg *config.Config) ([]Move, error) {
	have, err := heldStreams(ctx, js, cfg.Server.MaxPayload)
	if err != nil {
		return nil, err
	}
	var strangers []held
	for _, h := range have {
		if !h.ours {
			strangers = append(strangers, h)
		}
	}
	ideal, problems := planLayout(cfg, strangers, cfg.Server.MaxBytes, cfg.Server.MaxPayload)
	if problems != nil {
		return nil, problems
	}
	var moves []Move
	for _, h := range have {
		if !h.ours || h.name == AuditStream {
			continue
		}
		for _, s := range h.subjects {
			if subject.Covers("mqrun.>", s) {
				continue
			}
			for _, to := range destinations(ideal, s) {
				if to.To == h.name {
					continue
				}
				to.From = h.name
				if to.Messages, err = messagesOn(ctx, js, h.name, to.Subject); err != nil {
					return nil, err
				}
				moves = append(moves, to)
			}
		}
	}
	return moves, nil
}

// destinations are the streams over which a subject would be spread.
func destinations(l layout, s string) []Move {
	var to []Move
	for _, spec := range l.streams {
		for _, f := range spec.Subjects {
			switch {
			case subject.Covers(f, s):
				return []Move{{Subject: s, To: spec.Name}}
			case subject.Overlap(f, s):
				to = append(to, Move{Subject: f, To: spec.Name})
			}
		}
	}
	if to == nil {
		to = []Move{{Subject: s}}
	}
	return slices.Clip(to)
}

func messagesOn(ctx context.Context, js jetstream.JetStream, stream, s string) (uint64, error) {
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(s))
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", stream, err)
	}
	n := uint64(0)
	for _, v := range info.State.Subjects {
		n += v
	}
	return n, nil
}
