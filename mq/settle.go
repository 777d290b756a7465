package mq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	settleTimeout = 5 * time.Second
	// minNakDelay: the server forgets a nak without a delay when it restarts,
	// and delivers at once, in a loop that takes a whole core.
	minNakDelay  = 20 * time.Millisecond
	baseNakDelay = 50 * time.Millisecond
	maxNakDelay  = time.Minute
)

// nakDelay doubles with each delivery.
func nakDelay(deliveries uint64) time.Duration {
	if deliveries > 11 { // 50 ms << 11 is over a minute
		return maxNakDelay
	}
	return min(baseNakDelay<<max(deliveries, 1)>>1, maxNakDelay)
}

func nakBody(d time.Duration) []byte {
	return fmt.Appendf(nil, `-NAK {"delay":%d}`, d)
}

// message makes a Message whose settlement goes to the server.
func (e *EmbeddedNATS) message(ctx context.Context, m *nats.Msg, info AckInfo) *Message {
	fail := func(what string, err error) error {
		return fmt.Errorf("%s message %d of stream %s: %w", what, info.Sequence, info.Stream, err)
	}
	doubleAck := func(ctx context.Context) error {
		if err := e.confirm(ctx, m.Reply, []byte("+ACK")); err != nil {
			return fail("ack", err)
		}
		return nil
	}
	ack := func() error {
		if err := e.nc.Publish(m.Reply, []byte("+ACK")); err != nil {
			return fail("ack", err)
		}
		return nil
	}
	nak := func() error {
		if err := e.nc.Publish(m.Reply, nakBody(nakDelay(info.Deliveries))); err != nil {
			return fail("nak", err)
		}
		return nil
	}
	return NewMessage(ctx, m.Subject, m.Data, info.Time, doubleAck, ack, nak)
}

// confirm sends a settlement as a request, which the server answers for naks as
// well as for acks. It may be repeated: a settled message stays as it is.
func (e *EmbeddedNATS) confirm(ctx context.Context, reply string, body []byte) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, settleTimeout)
		defer cancel()
	}
	_, err := e.nc.RequestWithContext(ctx, reply, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("the consumer is gone: %w", err)
	}
	return err
}

// nak gives a message back and waits for the server's word.
func (e *EmbeddedNATS) nak(ctx context.Context, m *nats.Msg, d time.Duration) error {
	if err := e.confirm(ctx, m.Reply, nakBody(d)); err != nil {
		return fmt.Errorf("nak: %w", err)
	}
	return nil
}
