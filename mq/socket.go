package mq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// maxSocketPath is what every system takes as the path of a unix socket (the
// smallest limit is 104 bytes with the closing zero).
const maxSocketPath = 100

// socket is the door for our own commands: a unix socket whose connections are
// bridged to the server in this process. The file's mode is its lock.
type socket struct {
	path string // as asked for
	dir  string // folder of the real socket when path is too long, else ""
	l    *net.UnixListener
	srv  *natsserver.Server
	log  *slog.Logger
	wg   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil once closed
}

// listenSocket needs the store's lock: only then is a socket that lies there
// known to be stale.
//
// A path that is too long for a socket holds a text file with the path of the
// real one, which is in a private temporary folder.
func listenSocket(path string, srv *natsserver.Server, log *slog.Logger) (_ *socket, err error) {
	s := &socket{path: path, srv: srv, log: log, conns: make(map[net.Conn]bool)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen on socket %q: %w", path, err)
		}
	}()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	real := path
	if len(path) > maxSocketPath {
		if s.dir, err = os.MkdirTemp("", "mqrun-"); err != nil {
			return nil, err
		}
		real = filepath.Join(s.dir, "sock")
	}
	if s.l, err = net.ListenUnix("unix", &net.UnixAddr{Name: real, Net: "unix"}); err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	err = os.Chmod(real, 0o600)
	if err == nil && s.dir != "" {
		err = writeFile(path, []byte(real))
	}
	if err != nil {
		return nil, errors.Join(err, s.l.Close(), s.removeDir())
	}
	s.wg.Go(s.accept)
	return s, nil
}

// removeStale removes what a killed process left at path, and nothing else.
func removeStale(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.Mode()&fs.ModeSocket != 0:
		return os.Remove(path)
	}
	real := readPointer(path)
	if real == "" {
		return errors.New("a file that is not ours is in the way; move it")
	}
	return errors.Join(os.RemoveAll(filepath.Dir(real)), os.Remove(path))
}

// readPointer returns the path of the real socket that the file at path names,
// or "". It takes only what listenSocket writes.
func readPointer(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	real := strings.TrimSpace(string(text))
	if err != nil || !filepath.IsAbs(real) || filepath.Base(real) != "sock" || !strings.HasPrefix(filepath.Base(filepath.Dir(real)), "mqrun-") {
		return ""
	}
	return real
}

func (s *socket) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("socket", "error", err)
			time.Sleep(50 * time.Millisecond) // out of files, most likely
			continue
		}
		if !s.track(c) {
			return
		}
		s.wg.Go(func() { s.bridge(c) })
	}
}

func (s *socket) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		_ = c.Close()
		return false
	}
	s.conns[c] = true
	return true
}

// bridge copies both ways until either end closes.
func (s *socket) bridge(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in, err := s.srv.InProcessConn()
	if err != nil {
		return // the server is going down
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(in, c)
		_ = in.Close()
	})
	_, _ = io.Copy(c, in)
	_ = c.Close()
	_ = in.Close()
	wg.Wait()
}

func (s *socket) close() error {
	err := s.l.Close() // removes the socket's file
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
	if s.dir != "" {
		err = errors.Join(err, os.Remove(s.path), s.removeDir())
	}
	if err != nil {
		return fmt.Errorf("close socket: %w", err)
	}
	return nil
}

func (s *socket) removeDir() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// socketDialer reaches the socket at this path, whatever address the client
// library has.
type socketDialer string

func (d socketDialer) Dial(string, string) (net.Conn, error) {
	path := string(d)
	if len(path) > maxSocketPath {
		if path = readPointer(path); path == "" {
			return nil, fmt.Errorf("%w (nobody listens on %s)", ErrNotRunning, string(d))
		}
	}
	c, err := net.DialTimeout("unix", path, 5*time.Second)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; the socket belongs to another user", err)
	case err != nil:
		return nil, fmt.Errorf("%w (nobody listens on %s)", ErrNotRunning, string(d))
	}
	return c, nil
}

// DialSocket connects to the queue whose [Options.Socket] is path. The deadline
// of ctx bounds the connecting only. ErrNotRunning when nobody listens. The
// connection does not reconnect unless opts say so.
func DialSocket(ctx context.Context, path string, opts ...nats.Option) (*nats.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to mqrun: %w", err)
	}
	all := []nats.Option{
		nats.Name("mqrun"), nats.NoReconnect(), nats.SetCustomDialer(socketDialer(path)),
		nats.SkipHostLookup(), nats.IgnoreDiscoveredServers(),
	}
	if d, ok := ctx.Deadline(); ok {
		all = append(all, nats.Timeout(time.Until(d)))
	}
	nc, err := nats.Connect("nats://mqrun.socket:4222", append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to mqrun: %w", err)
	}
	return nc, nil
}
