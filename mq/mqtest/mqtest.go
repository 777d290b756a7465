// Package mqtest is the contract of mq's Publisher and Subscriber as a test
// suite, for this module's queue and for any other that claims to be one.
//
//	func TestConformance(t *testing.T) {
//		mqtest.Run(t, func(t *testing.T) (mq.Publisher, mq.Subscriber) {
//			q, err := mq.NewEmbedded(t.TempDir(), 1<<30)
//			...
//			return q, q
//		})
//	}
//
// # Caveats
//
// The suite publishes on subjects below `ingest.` and names its consumers
// itself, so each case needs a queue of its own. It closes what it is given.
package mqtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mqrun/mqrun/mq"
)

const (
	// patience is how long a case waits for what must happen.
	patience = 60 * time.Second
	// quiet is how long it looks for what must not happen.
	quiet = 300 * time.Millisecond
)

// Run checks that what open returns keeps the contract. open is called once for
// each case and may return one value as both.
func Run(t *testing.T, open func(t *testing.T) (mq.Publisher, mq.Subscriber)) {
	for _, c := range []struct {
		name string
		run  func(*bench)
	}{
		{"round trip", roundTrip},
		{"headers are appended", headersAppended},
		{"the trace goes on", traceGoesOn},
		{"order", inOrder},
		{"a wildcard filters", wildcard},
		{"durables are independent", independent},
		{"a nil return does not ack", nilDoesNotAck},
		{"an error return naks once", errorNaksOnce},
		{"failures come again later and later", failuresSlowDown},
		{"a nak comes again", nakComesAgain},
		{"nothing comes again after a double ack", doubleAckEnds},
		{"a panic is a failure", panicFails},
		{"cancelling is a barrier and keeps the durable", cancelKeepsDurable},
		{"a handler may settle after the cancel", settleAfterCancel},
		{"published before anybody subscribed", deliverAll},
		{"a wildcard cannot be published to", refuseWildcard},
		{"close is idempotent and concurrent", closeTwice},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			b := &bench{T: t, ctx: ctx}
			b.pub, b.sub = open(t)
			defer b.close()
			c.run(b)
		})
	}
}

// bench is a queue under test.
type bench struct {
	*testing.T
	ctx context.Context
	pub mq.Publisher
	sub mq.Subscriber
}

func (b *bench) close() {
	b.Helper()
	if err := errors.Join(b.sub.Close(), b.pub.Close()); err != nil {
		b.Errorf("close: %v", err)
	}
}

func (b *bench) publish(subject, data string, opts ...mq.PublishOpt) {
	b.Helper()
	if err := b.pub.Publish(b.ctx, subject, []byte(data), opts...); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) subscribe(ctx context.Context, subject, consumer string, h func(*mq.Message) error) {
	b.Helper()
	if err := b.sub.Subscribe(ctx, subject, consumer, h); err != nil {
		b.Fatal(err)
	}
}

// collect subscribes with a handler that acks and passes on.
func (b *bench) collect(subject, consumer string) <-chan *mq.Message {
	b.Helper()
	c := make(chan *mq.Message, 1000)
	b.subscribe(b.ctx, subject, consumer, func(m *mq.Message) error {
		if err := m.DoubleAck(m.Ctx); err != nil {
			return nil //nolint:nilerr // settled or not, the contract allows no error now
		}
		c <- m
		return nil
	})
	return c
}

func next[T any](b *bench, c <-chan T) T {
	b.Helper()
	select {
	case v := <-c:
		return v
	case <-b.ctx.Done():
		b.Fatal("nothing came")
		panic("unreachable")
	}
}

func (b *bench) want(c <-chan *mq.Message, data ...string) {
	b.Helper()
	for _, d := range data {
		if m := next(b, c); string(m.Data) != d {
			b.Fatalf("got %q; want %q", m.Data, d)
		}
	}
}

func none[T any](b *bench, c <-chan T, what string) {
	b.Helper()
	select {
	case v := <-c:
		b.Errorf("%s: %v", what, v)
	case <-time.After(quiet):
	}
}
