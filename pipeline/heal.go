package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// healAfter is what whoever deleted a stream has to make another one.
const healAfter = 3 * time.Second

// heal makes streams of ours again that were deleted while pipelines need them.
// What they held is gone; but with them gone nothing would go on until the next
// start, and that would make them just the same.
func (m *Manager) heal(ctx context.Context) {
	for {
		select {
		case <-m.broker.trouble:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(healAfter):
		case <-ctx.Done():
			return
		}
		work, cancel := context.WithTimeout(ctx, flushWait)
		if err := m.remake(work); err != nil && ctx.Err() == nil {
			m.o.Logger.Error("a stream is gone and cannot be made again, trying on", "error", err)
			m.broker.missing()
		}
		cancel()
	}
}

// remake makes what is not there. It takes turns with reloads.
func (m *Manager) remake(ctx context.Context) error {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.closed {
		return nil
	}
	m.mu.Lock()
	specs := m.streams
	m.mu.Unlock()
	return m.broker.steady(func() error { return m.makeAgain(ctx, specs) })
}

func (m *Manager) makeAgain(ctx context.Context, specs []mq.StreamSpec) error {
	for _, spec := range specs {
		_, err := m.broker.js.Stream(ctx, spec.Name)
		if err == nil {
			continue
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("look for stream %s: %w", spec.Name, err)
		}
		if _, err := mq.EnsureStream(ctx, m.broker.js, spec); err != nil {
			return err
		}
		m.o.Logger.Error("the stream was deleted; it is made again, without what it held", "stream", spec.Name)
	}
	_, _, err := m.broker.make(ctx, m.o.MaxBytes)
	return err
}
