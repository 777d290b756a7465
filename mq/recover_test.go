package mq_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/mq"
)

// After a power cut a consumer's state can be newer than its stream's messages.
// A server that kept it so would hold back as many new ones; this one moves the
// consumer back.
func TestConsumerAheadOfItsStreamMissesNothing(t *testing.T) {
	dir := t.TempDir()
	msgs := filepath.Join(dir, "jetstream", "$G", "streams", mq.StreamName(), "msgs")
	q := open(t, mq.Options{StoreDir: dir})
	publish(t, q, "1", "2", "3")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "msgs")
	if err := os.CopyFS(old, os.DirFS(msgs)); err != nil {
		t.Fatal(err)
	}
	q = open(t, mq.Options{StoreDir: dir})
	publish(t, q, "4", "5", "6")
	got := make(chan string, 100)
	ack := func(m *mq.Message) error {
		err := m.DoubleAck(m.Ctx)
		got <- string(m.Data)
		return err
	}
	subscribe(t, q, t.Context(), ack)
	for i := range 6 {
		if d := await(t, got, "message"); d != fmt.Sprint(i+1) {
			t.Fatalf("got %q", d)
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(msgs); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(msgs, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}

	var l logs
	q = open(t, mq.Options{StoreDir: dir, Logger: l.logger()})
	publish(t, q, "new")
	subscribe(t, q, t.Context(), ack)
	for await(t, got, "new message") != "new" {
	}
	if !strings.Contains(l.String(), "past last stream sequence") {
		t.Errorf("nothing is logged: %s", l.String())
	}
}

func TestSubscriptionOutlivesTheServer(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	server := mq.Options{StoreDir: dir, Listen: addr, NoAuth: true}
	far := open(t, server)
	near := open(t, mq.Options{URL: "nats://" + addr})
	got := make(chan string, 10)
	subscribe(t, near, t.Context(), func(m *mq.Message) error {
		err := m.DoubleAck(m.Ctx)
		got <- string(m.Data)
		return err
	})
	publish(t, near, "before")
	if d := await(t, got, "message"); d != "before" {
		t.Fatalf("got %q", d)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	far = open(t, server)
	publish(t, far, "after")
	if d := await(t, got, "message after the restart"); d != "after" {
		t.Fatalf("got %q", d)
	}
}
