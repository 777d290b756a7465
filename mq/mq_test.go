package mq_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mqrun/mqrun/mq"
)

// TestMain lets the test binary play a second process, see child_test.go.
func TestMain(m *testing.M) {
	if role := os.Getenv("MQ_TEST_CHILD"); role != "" {
		child(role)
		return
	}
	os.Exit(m.Run())
}

// logs collects what a queue logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open opens a queue that is closed with the test. Unless told otherwise it
// syncs rarely, to be quick.
func open(t *testing.T, o mq.Options) *mq.EmbeddedNATS {
	t.Helper()
	if o.StoreDir == "" && o.URL == "" {
		o.StoreDir = t.TempDir()
	}
	if o.SyncInterval == 0 {
		o.SyncInterval = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	q, err := mq.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// deadline is how long a test waits for what must happen.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// await takes one value from c.
func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-deadline(t).Done():
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// until waits for a condition that no event tells.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx := deadline(t)
	for !cond() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s did not come", what)
		}
	}
}
