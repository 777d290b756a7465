package mq

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

const (
	serverName = "mqrun"
	// The server's own cap would lock the dead letters and the buckets as soon
	// as one stream had taken everything, and it refuses every change of a store
	// whose reservations are above it, even one that shrinks them. So the caps
	// of the streams keep MaxBytes, and the server has none to speak of.
	serverMaxStore  = 1 << 60
	serverMaxMemory = 256 << 20
)

// startServer starts the embedded server and waits until its streams are
// recovered, however long that takes, or until ctx is done.
func startServer(ctx context.Context, o Options, name, dir string) (*natsserver.Server, *serverLog, error) {
	so := &natsserver.Options{
		ServerName:         name,
		NoSigs:             true,
		DontListen:         o.Listen == "",
		JetStream:          true,
		StoreDir:           dir,
		JetStreamMaxStore:  serverMaxStore,
		JetStreamMaxMemory: serverMaxMemory,
		SyncAlways:         o.SyncInterval == 0,
		SyncInterval:       o.SyncInterval,
		MaxPayload:         int32(o.MaxPayload),
		MaxPending:         max(natsserver.MAX_PENDING_SIZE, int64(2*o.MaxPayload)),
	}
	if o.Listen != "" {
		if err := listenOptions(so, o); err != nil {
			return nil, nil, err
		}
	}
	if err := o.Cluster.join(so, o.Token); err != nil {
		return nil, nil, err
	}
	s, err := natsserver.NewServer(so)
	if err != nil {
		return nil, nil, fmt.Errorf("start server: %w", err)
	}
	log := newServerLog(o.Logger)
	s.SetLoggerV2(log, false, false, false)
	started := make(chan struct{})
	go func() {
		defer close(started)
		s.Start()
	}()
	if err := awaitServer(ctx, s, started, log, o.Logger); err != nil {
		<-started // Shutdown during Start would leave half of it running
		s.Shutdown()
		s.WaitForShutdown()
		return nil, nil, err
	}
	return s, log, nil
}

func awaitServer(ctx context.Context, s *natsserver.Server, started <-chan struct{}, log *serverLog, l *slog.Logger) error {
	slow := time.NewTicker(10 * time.Second)
	defer slow.Stop()
	for begin := time.Now(); ; {
		select {
		case err := <-log.fatal:
			return fmt.Errorf("start server: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("start server: %w", context.Cause(ctx))
		case <-slow.C:
			l.Info("recovering the store", "seconds", int(time.Since(begin).Seconds()))
		case <-started:
			select {
			case err := <-log.fatal:
				return fmt.Errorf("start server: %w", err)
			default:
			}
			if !s.ReadyForConnections(5 * time.Second) {
				return errors.New("start server: it takes no connections")
			}
			if !s.JetStreamEnabled() {
				return errors.New("start server: JetStream is off; the log says why")
			}
			return nil
		}
	}
}

// tryListen tries an address, because the server treats a clash as the end of
// the process.
func tryListen(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %q is not host:port", ErrListen, address)
	}
	if port, err = net.LookupPort("tcp", text); err != nil {
		return "", 0, fmt.Errorf("%w: %q has no port number", ErrListen, address)
	}
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "", 0, fmt.Errorf("%w: %s is in use by another program; stop it, or listen on another port", ErrListen, address)
	case err != nil:
		return "", 0, fmt.Errorf("%w: %w", ErrListen, err)
	}
	if err := l.Close(); err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrListen, err)
	}
	return host, port, nil
}

// listenOptions opens a listener for clients.
func listenOptions(so *natsserver.Options, o Options) error {
	host, n, err := tryListen(o.Listen)
	if err != nil {
		return err
	}
	if n == 0 {
		n = natsserver.RANDOM_PORT
	}
	so.Host, so.Port = host, n
	if o.Token != "" {
		so.CustomClientAuthentication = tokenAuth(sha256.Sum256([]byte(o.Token)))
	}
	return nil
}

// tokenAuth asks clients of the listener for a token. Those that come over a
// pipe are this process, or were let through the socket by its file mode.
type tokenAuth [sha256.Size]byte

func (t tokenAuth) Check(c natsserver.ClientAuthentication) bool {
	if a := c.RemoteAddress(); a != nil && a.Network() == "pipe" {
		return true
	}
	got := sha256.Sum256([]byte(c.GetOpts().Token))
	return subtle.ConstantTimeCompare(got[:], t[:]) == 1
}
