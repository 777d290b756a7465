package pipeline

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// broker is what all pipelines of a process share: two connections (deliveries
// on one, publishes and acks on the other; a third gained nothing) and the
// JetStream API.
type broker struct {
	in, out    *nats.Conn
	js         jetstream.JetStream
	ask        jetstream.JetStream // on out, for requests within link
	link       *link               // of out
	attempts   jetstream.KeyValue
	owner      string // this process, in leases
	leaseBytes int64
	replicas   int      // of what is made
	journal    *journal // nil: none
	suspects   turn     // of the one message that runs alone
	state      jetstream.KeyValue
	losses     losses
	trouble    chan struct{}              // a stream is missing
	steady     func(func() error) error   // not while the store is opened again
	limit      func(subject string) int64 // largest message that the subject's stream takes
}

// leases is the bucket of leases, made when something needs one.
func (b *broker) leases(ctx context.Context) (jetstream.KeyValue, error) {
	return openLeases(ctx, b.js, b.leaseBytes, b.replicas)
}

// lease is the right to run a pipeline. Of the process that had our journal
// before, it is known that it does not run any more.
func (b *broker) lease(kv jetstream.KeyValue, pipeline string) *lease {
	l := &lease{open: b.leases, kv: kv, key: pipeline, owner: b.owner}
	if b.journal != nil {
		l.gone = b.journal.before
	}
	return l
}

// missing says that a stream is not there which should be.
func (b *broker) missing() {
	select {
	case b.trouble <- struct{}{}:
	default:
	}
}

// connect makes the connections and what mqrun keeps for itself.
func (b *broker) connect(ctx context.Context, o Options, m *Manager) (err error) {
	defer func() {
		if err != nil {
			b.disconnect()
		}
	}()
	asyncError := nats.ErrorHandler(func(nc *nats.Conn, s *nats.Subscription, err error) { m.connectionError(nc, s, err) })
	if b.in, err = o.MQ.Connect("mqrun deliveries", asyncError, nats.ReconnectHandler(func(*nats.Conn) { m.reconnected() })); err != nil {
		return err
	}
	// Nothing is buffered while the connection is away: the slots publish
	// again by themselves.
	if b.out, err = o.MQ.Connect("mqrun settlements", asyncError, nats.ReconnectBufSize(-1), nats.ReconnectHandler(func(*nats.Conn) { b.link.cut() })); err != nil {
		return err
	}
	if b.ask, err = jetstream.New(b.out); err != nil {
		return err
	}
	b.attempts, b.state, err = b.make(ctx, o.MaxBytes)
	return err
}

// make makes what mqrun keeps for itself, as far as it is not there.
func (b *broker) make(ctx context.Context, maxBytes int64) (attempts, state jetstream.KeyValue, err error) {
	attempts, err = mq.EnsureBucket(ctx, b.js, jetstream.KeyValueConfig{
		Bucket: BucketAttempts, Description: "failed handler calls by message",
		TTL: attemptsTTL, History: 1, Storage: jetstream.FileStorage, Replicas: b.replicas,
		MaxBytes: mq.Budget(maxBytes, 1).KV / 2,
	})
	if err != nil {
		return nil, nil, err
	}
	state, err = mq.EnsureBucket(ctx, b.js, jetstream.KeyValueConfig{
		Bucket: BucketState, Description: "what must not be forgotten", History: 1, Storage: jetstream.FileStorage, Replicas: b.replicas,
		MaxBytes: mq.Budget(maxBytes, 1).KV / 10,
	})
	if err != nil {
		return nil, nil, err
	}
	audit := auditSpec(maxBytes)
	audit.Replicas = b.replicas
	_, err = mq.EnsureStream(ctx, b.js, audit)
	return attempts, state, mq.Explain(b.js.Conn(), err)
}

func (b *broker) disconnect() {
	for _, nc := range []*nats.Conn{b.in, b.out} {
		if nc != nil {
			nc.Close()
		}
	}
}
