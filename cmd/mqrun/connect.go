package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

// socketName is the file in the store directory through which our own commands
// reach `mqrun run`.
const socketName = "sock"

const dialTimeout = 10 * time.Second

// connect reaches the running mqrun: at -s, else over the socket in the
// configured store directory.
func (c *cli) connect(ctx context.Context, opts ...nats.Option) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if c.server != "" {
		c.several = true
		nc, err := mq.Dial(ctx, mq.Options{URL: c.server}, opts...)
		if errors.Is(err, nats.ErrNoServers) {
			return nil, fmt.Errorf("connect to %s: nobody answers there; %w", mq.Redacted(c.server), mq.ErrNotRunning)
		}
		return nc, err
	}
	// Not c.load: what runs can be asked while the file has problems.
	server, cluster, err := config.Reach(config.LoadOptions{Files: c.configs, Env: c.env, Set: c.set})
	if err != nil {
		return nil, err
	}
	c.several = cluster.URL != "" || server.Cluster.Name != ""
	if cluster.URL != "" {
		nc, err := mq.Dial(ctx, remote(&config.Config{Server: server, NATS: cluster}), opts...)
		if errors.Is(err, nats.ErrNoServers) {
			return nil, fmt.Errorf("connect to %s (nats.url): nobody answers there", mq.Redacted(cluster.URL))
		}
		return nc, err
	}
	return mq.DialSocket(ctx, filepath.Join(server.StoreDir, socketName), opts...)
}

// jetStream is that of the running mqrun, or of the store itself while none
// runs. done ends it.
func (c *cli) jetStream(ctx context.Context, cfg *config.Config) (js jetstream.JetStream, done func() error, err error) {
	nc, err := c.connect(ctx)
	if err == nil {
		js, err = jetstream.New(nc)
		return js, func() error { nc.Close(); return nil }, err
	}
	if c.server != "" || !errors.Is(err, mq.ErrNotRunning) {
		return nil, nil, err
	}
	if _, err := os.Stat(filepath.Join(cfg.Server.StoreDir, "FORMAT")); err != nil {
		return nil, nil, fmt.Errorf("there is no store in %s yet", cfg.Server.StoreDir)
	}
	q, err := mq.Open(ctx, mq.Options{StoreDir: cfg.Server.StoreDir, MaxBytes: cfg.Server.MaxBytes, MaxPayload: int(cfg.Server.MaxPayload), Bare: true, Logger: c.logger()})
	if err != nil {
		return nil, nil, err
	}
	return q.JetStream(), q.Close, nil
}

// reconnect keeps a connection through a restart of the server. Nothing is
// buffered meanwhile: whoever publishes sends again.
func reconnect(o *nats.Options) error {
	o.AllowReconnect = true
	o.MaxReconnect = -1
	o.ReconnectWait = 100 * time.Millisecond
	o.ReconnectJitter = 50 * time.Millisecond
	o.ReconnectBufSize = -1
	return nil
}

// remote says how to reach the server that is used instead of an embedded one.
func remote(cfg *config.Config) mq.Options {
	n := cfg.NATS
	return mq.Options{
		URL: n.URL, Creds: n.Creds, NKey: n.NKey, CA: n.TLS.CA, Cert: n.TLS.Cert, Key: n.TLS.Key,
		Replicas: n.Replicas, MaxBytes: cfg.Server.MaxBytes,
	}
}
