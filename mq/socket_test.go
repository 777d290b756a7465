package mq_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

func TestSocket(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"short path": shortDir(t), "long path": long} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "sock")
			if _, err := mq.DialSocket(t.Context(), path); !errors.Is(err, mq.ErrNotRunning) || !strings.Contains(err.Error(), "start mqrun run, or pass -s") {
				t.Fatalf("nobody there: %v", err)
			}
			q := open(t, mq.Options{StoreDir: dir, Socket: path})
			fi, err := os.Lstat(path)
			if err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("mode %v: %v", fi.Mode(), err)
			}
			nc, err := mq.DialSocket(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan int, 1)
			subscribe(t, q, t.Context(), func(m *mq.Message) error {
				got <- len(m.Data)
				return m.DoubleAck(m.Ctx)
			})
			if _, err := js.Publish(deadline(t), "ingest.a", make([]byte, 900_000)); err != nil {
				t.Fatal(err)
			}
			if n := await(t, got, "message"); n != 900_000 {
				t.Errorf("got %d bytes", n)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			until(t, "end of the connection", nc.IsClosed)
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
			if _, err := mq.DialSocket(t.Context(), path); !errors.Is(err, mq.ErrNotRunning) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

// shortDir is a folder whose path fits into a socket's address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mq") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestStaleSocketIsReplaced(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as after kill -9
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := mq.DialSocket(t.Context(), path); !errors.Is(err, mq.ErrNotRunning) {
		t.Fatalf("stale: %v", err)
	}
	open(t, mq.Options{StoreDir: dir, Socket: path})
	nc, err := mq.DialSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	// A live one is not taken away by a process that does not get the store.
	if _, err := mq.Open(t.Context(), mq.Options{StoreDir: dir, Socket: path}); !errors.Is(err, mq.ErrStoreLocked) {
		t.Fatalf("second: %v", err)
	}
	nc, err = mq.DialSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestSocketNeverReplacesAFile(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mq.Open(t.Context(), mq.Options{StoreDir: dir, Socket: path}); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("got %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Errorf("the file became %q", b)
	}
	open(t, mq.Options{StoreDir: dir}) // the failed Open let go of the store
}
