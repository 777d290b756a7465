package mq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// EmbeddedNATS is a queue on a NATS server with JetStream that runs in this
// process, or on another server when it was opened with a URL. All methods may
// be called concurrently.
type EmbeddedNATS struct {
	opts   Options
	log    *slog.Logger
	store  *store
	srv    *natsserver.Server
	srvLog *serverLog
	socket *socket
	nc     *nats.Conn
	js     jetstream.JetStream

	stopping chan struct{} // closed when no handler may start any more
	hard     chan struct{} // closed when those that still run are given up

	opening  sync.RWMutex   // held while the store is opened again
	handlers sync.WaitGroup // subscriptions
	inUse    sync.WaitGroup // other calls that need the connection

	mu       sync.Mutex
	stopped  bool // takes no new subscriptions and connections
	closed   bool // takes nothing
	conns    []*nats.Conn
	damages  []Damage
	once     sync.Once
	closeErr error
}

var (
	_ Publisher  = (*EmbeddedNATS)(nil)
	_ Subscriber = (*EmbeddedNATS)(nil)
)

// NewEmbedded starts a server with JetStream in this process that keeps its
// messages in storeDir, at most maxBytes altogether (0: 10 GiB), and makes the
// streams [StreamName] and [DLQStreamName]. It opens no port and syncs every
// message to disk before its publish is confirmed. Logs go to the given logger,
// or to slog.Default. [Open] has more options.
func NewEmbedded(storeDir string, maxBytes int64, logger ...*slog.Logger) (*EmbeddedNATS, error) {
	o := Options{StoreDir: storeDir, MaxBytes: maxBytes}
	if len(logger) > 0 {
		o.Logger = logger[0]
	}
	return Open(context.Background(), o)
}

// Open opens a queue. ctx bounds the opening only; a large store takes seconds
// to recover. On an error nothing is left behind but the store directory.
func Open(ctx context.Context, o Options) (_ *EmbeddedNATS, err error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	e := &EmbeddedNATS{opts: o, log: o.Logger, stopping: make(chan struct{}), hard: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open queue: %w", err), e.Close())
		}
	}()
	if o.URL == "" {
		if err := e.serve(ctx); err != nil {
			return nil, err
		}
	}
	if e.nc, err = e.Connect("mq"); err != nil {
		return nil, err
	}
	if e.js, err = jetstream.New(e.nc); err != nil {
		return nil, err
	}
	if err := e.awaitCluster(ctx); err != nil {
		return nil, err
	}
	if err := e.Settled(ctx, func() error { return e.askAccount(ctx) }); err != nil {
		return nil, fmt.Errorf("ask %s for JetStream: %w", e.where(), Explain(e.nc, err))
	}
	if e.srv != nil {
		if err := e.compare(ctx); err != nil {
			return nil, err
		}
		e.background(e.revive)
		e.background(e.keepLedger)
	}
	if !o.Bare {
		if err := e.makeStreams(ctx); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// serve opens the store and starts the server and the socket on it.
func (e *EmbeddedNATS) serve(ctx context.Context) (err error) {
	if e.store, err = openStore(e.opts.StoreDir); err != nil {
		return err
	}
	n, err := e.store.node(e.opts.Cluster)
	if err != nil {
		return err
	}
	if e.srv, e.srvLog, err = startServer(ctx, e.opts, n.Name, e.store.dir); err != nil {
		return err
	}
	sync := "always"
	if i := e.opts.SyncInterval; i > 0 {
		sync = i.String()
	}
	e.log.Info("queue is open", "store", e.store.dir, "sync", sync, "max_bytes", e.opts.MaxBytes)
	if e.opts.Socket != "" {
		e.socket, err = listenSocket(e.opts.Socket, e.srv, e.log)
	}
	return err
}

// makeStreams makes the input and the dead-letter stream. Their shares depend
// on how many output streams are there already.
func (e *EmbeddedNATS) makeStreams(ctx context.Context) error {
	outputs := 0
	for s := range e.js.ListStreams(ctx).Info() {
		if n := s.Config.Name; Ours(&s.Config) && n != DLQStreamName() && strings.HasPrefix(n, StreamName()+"_") {
			outputs++
		}
	}
	b := Budget(e.opts.MaxBytes, outputs)
	if _, err := EnsureStream(ctx, e.js, StreamSpec{Name: StreamName(), Subjects: e.opts.Subjects, MaxBytes: b.Input, Replicas: e.opts.Replicas}); err != nil {
		return err
	}
	_, err := EnsureStream(ctx, e.js, StreamSpec{Name: DLQStreamName(), Subjects: []string{"dlq.>"}, MaxBytes: b.DLQ, MaxMsgSize: -1, Replicas: e.opts.Replicas})
	return err
}

// askAccount finds out whether the server can do what is needed, and how much
// of it there is for us.
func (e *EmbeddedNATS) askAccount(ctx context.Context) error {
	a, err := e.js.AccountInfo(ctx)
	if err != nil {
		return err
	}
	if a.API.Level < minAPILevel {
		return fmt.Errorf("nats-server %s is too old: it has JetStream API level %d, and atomic batches need %d; use nats-server %s or newer", e.nc.ConnectedServerVersion(), a.API.Level, minAPILevel, minVersion)
	}
	if most := a.Limits.MaxStore; most > 0 && e.srv == nil {
		e.opts.MaxBytes = min(e.opts.MaxBytes, most/int64(max(e.opts.Replicas, 1)))
	}
	return nil
}

// MaxBytes is what all streams and buckets may hold together: what was asked
// for, or what the account has when that is less.
func (e *EmbeddedNATS) MaxBytes() int64 { return e.opts.MaxBytes }

// Losses are the ends of streams that were missing when the embedded server
// started, by consumer. Of another server they are not known, and in a cluster
// the other nodes have what is missing on one.
func (e *EmbeddedNATS) Losses() []Loss {
	if e.srvLog == nil || e.opts.Cluster.Name != "" {
		return nil
	}
	e.srvLog.mu.Lock()
	defer e.srvLog.mu.Unlock()
	return slices.Clone(e.srvLog.losses)
}

// Replicas is on how many servers streams and buckets are to be kept.
func (e *EmbeddedNATS) Replicas() int { return max(e.opts.Replicas, 1) }

// GetServer returns the server in this process, or nil when the queue was
// opened with a URL.
func (e *EmbeddedNATS) GetServer() *natsserver.Server { return e.srv }

// JetStream returns the JetStream handle of the queue's own connection.
func (e *EmbeddedNATS) JetStream() jetstream.JetStream { return e.js }

// NatsConn returns the queue's own connection. Do not close it.
func (e *EmbeddedNATS) NatsConn() *nats.Conn { return e.nc }
