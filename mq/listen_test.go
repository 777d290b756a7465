package mq_test

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

func TestLIF03_PortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	foreign := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			foreign <- c
		}
	}()
	dir := t.TempDir()
	_, err = mq.Open(t.Context(), mq.Options{StoreDir: dir, Listen: l.Addr().String(), Token: "x"})
	if !errors.Is(err, mq.ErrListen) || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("got %v", err)
	}
	select {
	case <-foreign:
		t.Error("it spoke to the foreign server")
	default:
	}
	open(t, mq.Options{StoreDir: dir}) // nothing is left behind
}

func TestTokenGuardsTheListenerOnly(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "sock")
	q := open(t, mq.Options{Listen: "127.0.0.1:0", Token: "s3cret", Socket: sock})
	url := "nats://" + q.GetServer().Addr().String()
	for _, tt := range []struct {
		name string
		ok   bool
		dial func() (*nats.Conn, error)
	}{
		{"no token", false, func() (*nats.Conn, error) { return nats.Connect(url) }},
		{"wrong token", false, func() (*nats.Conn, error) { return nats.Connect(url, nats.Token("s3cre")) }},
		{"token", true, func() (*nats.Conn, error) { return nats.Connect(url, nats.Token("s3cret")) }},
		{"in process", true, func() (*nats.Conn, error) { return q.Connect("more") }},
		{"socket", true, func() (*nats.Conn, error) { return mq.DialSocket(t.Context(), sock) }},
	} {
		nc, err := tt.dial()
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil {
			continue
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(deadline(t), "ingest.a", nil); err != nil {
			t.Errorf("%s: publish: %v", tt.name, err)
		}
		nc.Close()
	}
	remote := open(t, mq.Options{URL: url, Token: "s3cret"})
	if remote.GetServer() != nil {
		t.Error("a queue at a URL has a server")
	}
	if err := remote.Publish(deadline(t), "ingest.a", nil); err != nil {
		t.Error(err)
	}
}
