// Package mq is the broker in your process: a NATS server with JetStream, its
// streams, and a small interface to publish and subscribe on them with
// explicit settlement.
//
//	q, err := mq.NewEmbedded("data", 1<<30)
//	...
//	err = q.Publish(ctx, "ingest.orders", body)
//	err = q.Subscribe(ctx, "ingest.>", "billing", func(m *mq.Message) error {
//		...
//		return m.DoubleAck(m.Ctx)
//	})
//
// # Caveats
//
// Delivery is at-least-once. On a single embedded server a publish that
// returned nil survives a kill of the process; an acknowledgement may be
// forgotten when the process is killed within some 100 ms of it, so handlers
// must bear a second delivery.
//
// MaxBytes is kept by the caps of the streams that this package and mqrun
// make. A stream that somebody else makes on the server has no cap but its own.
package mq

import "context"

// StreamName returns the name of the stream that holds what comes in. By
// default its subjects are `ingest.>`. The name is fixed: an embedded server
// belongs to one process, so nothing else can claim it.
func StreamName() string { return "MQRUN" }

// DLQStreamName returns the name of the stream that holds dead letters, on
// `dlq.>`. It is fixed for the same reason as [StreamName].
func DLQStreamName() string { return "MQRUN_DLQ" }

// Publisher publishes messages to a subject.
type Publisher interface {
	// Publish returns nil once the message is stored.
	Publish(ctx context.Context, subject string, data []byte, opts ...PublishOpt) error
	Close() error
}

// Subscriber delivers the messages of a subject to a handler.
type Subscriber interface {
	// Subscribe makes the durable consumer consumerName on subject, which may
	// hold wildcards, and returns nil once it exists. The handler is then called
	// in the background, one message after the other, from the oldest stored
	// message on, until ctx is done or Close is called. The durable stays: the
	// next Subscribe with its name goes on where this one ended.
	//
	// The handler settles each message itself. Returning nil settles nothing: a
	// message that is neither acked nor nak'd is delivered again after 30 s.
	//
	// A handler that returns an error must not have called Ack, DoubleAck or
	// Nak: the error naks the message, exactly once. So a handler that calls Nak
	// returns nil, and one that calls DoubleAck returns nil when that succeeded;
	// what an error after a confirmed ack does is undefined.
	Subscribe(ctx context.Context, subject, consumerName string, handler func(msg *Message) error) error
	Close() error
}
