package mq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

const drainTimeout = 10 * time.Second

// Connect makes a further connection to the server of the queue. It reconnects
// for ever and is closed by Close; the caller may close it earlier. Options
// given here win over the defaults.
func (e *EmbeddedNATS) Connect(name string, opts ...nats.Option) (*nats.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil, fmt.Errorf("connect %q: %w", name, ErrClosed)
	}
	target, err := e.target()
	if err != nil {
		return nil, fmt.Errorf("connect %q to %s: %w", name, e.where(), err)
	}
	all := append(defaults(e.log, name), target...)
	nc, err := nats.Connect(e.opts.URL, append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect %q to %s: %w", name, e.where(), err)
	}
	e.conns = append(slices.DeleteFunc(e.conns, (*nats.Conn).IsClosed), nc)
	return nc, nil
}

// target are the options that lead to the server: the one in this process, or
// the one at URL.
func (e *EmbeddedNATS) target() ([]nats.Option, error) {
	if e.srv != nil {
		return []nats.Option{nats.InProcessServer(e.srv)}, nil
	}
	return e.opts.remote()
}

// where names the server for people, without passwords.
func (e *EmbeddedNATS) where() string {
	if e.srv != nil {
		return "the embedded server"
	}
	return Redacted(e.opts.URL)
}

func defaults(log *slog.Logger, name string) []nats.Option {
	log = log.With("connection", name)
	said := newOnce()
	return []nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.DrainTimeout(drainTimeout),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("connection lost; reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("connected again") }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			switch v, ok := AsViolation(err); {
			case ok && !said.again(v.Subject):
				return // it comes with every attempt
			case s != nil:
				log.Error("connection error", "subject", s.Subject, "error", err)
				return
			}
			log.Error("connection error", "error", err)
		}),
	}
}

// drain closes a connection after what it has buffered is sent and handled.
func drain(nc *nats.Conn) error {
	if nc.IsClosed() {
		return nil
	}
	closed := nc.StatusChanged(nats.CLOSED)
	if err := nc.Drain(); err != nil {
		nc.Close()
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionReconnecting) {
			return nil
		}
		return fmt.Errorf("drain connection %q: %w", nc.Opts.Name, err)
	}
	select {
	case <-closed:
	case <-time.After(drainTimeout + time.Second):
		nc.Close()
		return fmt.Errorf("drain connection %q: %w", nc.Opts.Name, nats.ErrDrainTimeout)
	}
	return nil
}

// Ping asks the server whether it is there and keeps messages: one that ran
// into a disk it may not write turns JetStream off and goes on.
func (e *EmbeddedNATS) Ping(ctx context.Context) error {
	if err := e.use(); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	defer e.inUse.Done()
	if _, err := e.js.AccountInfo(ctx); err != nil {
		return fmt.Errorf("ping %s: %w", e.where(), err)
	}
	return nil
}
