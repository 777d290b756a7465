package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/pipeline"
)

// TestReloader_stopped: whoever asks while mqrun stops gets an answer, and a
// load that was cut short is not taken for a bad configuration.
func TestReloader_stopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	applying := make(chan struct{}, 10) // more than one apply may be cut short
	cut := func(ctx context.Context, _ *config.Config) (pipeline.Plan, error) {
		applying <- struct{}{}
		<-ctx.Done()
		return pipeline.Plan{}, config.Problems{{File: "pipelines.yaml", Message: "compile: context canceled"}}
	}
	r := newReloader(func() (*config.Config, error) { return &config.Config{}, nil }, cut, &watched{}, slog.New(slog.DiscardHandler))
	go r.loop(ctx, nil)
	answer := make(chan error, 1)
	go func() {
		_, err := r.Reload(t.Context())
		answer <- err
	}()
	<-applying
	cancel(errInterrupted)
	if err := <-answer; !errors.Is(err, pipeline.ErrClosed) {
		t.Errorf("the reload that ran: %v, want ErrClosed", err)
	}
	if _, err := r.Reload(t.Context()); !errors.Is(err, pipeline.ErrClosed) {
		t.Errorf("a reload after the end: %v, want ErrClosed", err)
	}
	if last := r.Last(); last.Problems != nil {
		t.Errorf("last reload has problems: %q", last.Problems)
	}
	if err := r.start(ctx, &config.Config{}); !errors.Is(err, errInterrupted) {
		t.Errorf("a start that was interrupted: %v", err)
	}
}
