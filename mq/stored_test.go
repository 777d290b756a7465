package mq

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A republished message has the very headers that a direct get adds.
func TestReadStoredAddsNothing(t *testing.T) {
	e, err := NewEmbedded(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	want := nats.Header{
		"Nats-Stream": {"ELSEWHERE"}, "Nats-Sequence": {"7"}, "x-lower": {"a", "b", "a"}, "Bin": {"\xff\xfe \x80"}, "Empty": {""},
	}
	data := bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, (DefaultMaxPayload-PayloadReserve-1024)/4)
	ack, err := e.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: "ingest.a", Header: want, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := e.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m, err := ReadStored(t.Context(), nc, "MQRUN", ack.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, m.Header); d != "" {
		t.Error(d)
	}
	if m.Subject != "ingest.a" || m.Sequence != ack.Sequence || !bytes.Equal(m.Data, data) || m.Time.IsZero() {
		t.Errorf("subject %q, sequence %d, %d bytes, time %v", m.Subject, m.Sequence, len(m.Data), m.Time)
	}
	if _, err := ReadStored(t.Context(), nc, "MQRUN", ack.Sequence+1); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("a message that is not there: %v", err)
	}
	if _, err := ReadStored(t.Context(), nc, "NONE", 1); err == nil {
		t.Error("a stream that is not there: no error")
	}
}
