package mq

import (
	"context"
	"sync/atomic"
	"time"
)

// Message is a message received from the queue.
type Message struct {
	// Ctx carries the message's headers ([HeadersFromContext]) and its trace
	// ([TraceFromContext]), so that a Publish with it continues the trace. It
	// outlives the context given to Subscribe: a handler that runs when the
	// subscription ends can still settle its message. It is done once Close has
	// waited long enough for the handler.
	Ctx     context.Context
	Subject string
	Data    []byte
	// Timestamp is when the message was stored.
	Timestamp time.Time

	doubleAck func(context.Context) error
	ack, nak  func() error
	settled   atomic.Bool
}

// NewMessage makes a message whose settlement calls the given functions; one
// that is nil makes its method do nothing. It is for tests of handlers and for
// other queues that deliver to the same handlers.
func NewMessage(ctx context.Context, subject string, data []byte, ts time.Time, doubleAck func(context.Context) error, ack func() error, nak func() error) *Message {
	return &Message{Ctx: ctx, Subject: subject, Data: data, Timestamp: ts, doubleAck: doubleAck, ack: ack, nak: nak}
}

// Ack acknowledges the message without waiting for the server. When the ack is
// lost the message is delivered again. Use it where that costs little.
func (m *Message) Ack() error { return m.settle(m.ack) }

// DoubleAck acknowledges the message and waits until the server has confirmed
// it, for 5 s if ctx has no deadline. After an error it may be called again.
func (m *Message) DoubleAck(ctx context.Context) error {
	if m.doubleAck == nil {
		return m.settle(nil)
	}
	return m.settle(func() error { return m.doubleAck(ctx) })
}

// Nak asks for redelivery without waiting for the server. The message comes
// again after a delay that grows with each delivery: at once it would only
// spin.
func (m *Message) Nak() error { return m.settle(m.nak) }

func (m *Message) settle(do func() error) error {
	if do != nil {
		if err := do(); err != nil {
			return err
		}
	}
	m.settled.Store(true)
	return nil
}
