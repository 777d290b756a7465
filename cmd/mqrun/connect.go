package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/mq"
)

// socketName is the file in the store directory through which our own commands
// reach `mqrun run`.
const socketName = "sock"

const dialTimeout = 10 * time.Second

// connect reaches the running mqrun: at -s, else over the socket in the
// configured store directory.
func (c *cli) connect(ctx context.Context, opts ...nats.Option) (*nats.Conn, error) {
	if c.server != "" {
		all := []nats.Option{nats.Name("mqrun"), nats.NoReconnect(), nats.Timeout(dialTimeout)}
		nc, err := nats.Connect(c.server, append(all, opts...)...)
		if errors.Is(err, nats.ErrNoServers) {
			return nil, fmt.Errorf("connect to %s: nobody answers there; %w", redacted(c.server), mq.ErrNotRunning)
		}
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", redacted(c.server), err)
		}
		return nc, nil
	}
	cfg, err := c.load(c.configs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return mq.DialSocket(ctx, filepath.Join(cfg.Server.StoreDir, socketName), opts...)
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

// redacted is a server URL without what it is opened with.
func redacted(server string) string {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return "the server given with -s"
	}
	return u.Scheme + "://" + u.Host
}
