package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
)

// seen is what a handler saw of a message.
type seen struct {
	Subject string
	Header  map[string][]string
	Data    string
}

// judge fails messages until it is told not to, and remembers what it saw.
type judge struct {
	mu   sync.Mutex
	pass bool
	all  []seen
}

func (j *judge) handle(m *host.Message, r *host.Result) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := map[string][]string{}
	for k, v := range m.Header {
		if !hasPrefixFold(k, prefixNats) && !hasPrefixFold(k, prefixOurs) { // host hides them
			h[k] = slices.Clone(v)
		}
	}
	j.all = append(j.all, seen{m.Subject, h, string(m.Data)})
	if !j.pass {
		r.Code, r.Reason = host.Reject, "not today"
		return nil
	}
	emit(r, "", string(m.Data))
	return nil
}

func (j *judge) passes() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pass = true
}

func (j *judge) seen() []seen {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

func (r *rig) letters() *Letters {
	r.t.Helper()
	nc, err := r.mq.Connect("letters")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	l, err := OpenLetters(r.ctx(), nc, "somebody")
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (r *rig) replay(l *Letters, sequence uint64) *Replay {
	r.t.Helper()
	p, err := l.Prepare(r.ctx(), sequence)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := l.Send(r.ctx(), p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func TestHDR01_BytesComeBackOnReplay(t *testing.T) {
	j := &judge{}
	r := newRig(t, `
plugins: { a: { module: a.wasm }, b: { module: b.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [a], to: done.orders }
  others: { from: "orders.>", steps: [b], to: done.others }
`, map[string]native{"a": j.handle, "b": func(m *host.Message, r *host.Result) error {
		emit(r, "", "seen")
		return nil
	}})
	data := []byte{0, 0xff, 0xfe, '\r', '\n', 0, 'x', 0xc3, 0x28}
	header := nats.Header{
		"x-trace-id": {"abc"}, "X-Trace-Id": {"other"}, "Multi": {"a", "b", "a"}, "bin": {"\xff\xfe"}, "Empty": {""},
	}
	sent := nats.Header{"Nats-Msg-Id": {"mine"}, "Nats-TTL": {"1h"}, "Mqrun-Reason": {"fake"}}
	for k, v := range header {
		sent[k] = v
	}
	if _, err := r.js().PublishMsg(t.Context(), &nats.Msg{Subject: "orders.eu", Header: sent, Data: data}); err != nil {
		t.Fatal(err)
	}
	dead := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	checkHeaders(t, dead.Headers(), map[string]string{
		"Mqrun-Original-Nats-Msg-Id": "mine", "Mqrun-Original-Nats-TTL": "1h", "Nats-TTL": "", "Mqrun-Reason": "rejected",
	})
	for k, v := range header {
		if got := dead.Headers()[k]; !slices.Equal(got, v) {
			t.Errorf("dead letter: %s %q; want %q", k, got, v)
		}
	}
	r.settled("MQRUN", "orders")
	r.settled("MQRUN", "others")

	// It fails again, and then passes.
	l := r.letters()
	r.replay(l, 1)
	again := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	checkHeaders(t, again.Headers(), map[string]string{"Mqrun-Original-Nats-Msg-Id": "mine", "Mqrun-Subject": "orders.eu"})
	j.passes()
	p := r.replay(l, 2)
	if p.Subject != "mqrun.MQRUN.redo.orders" || p.Warning != "" {
		t.Errorf("%+v", p)
	}
	r.read("MQRUN_ORDERS", "done.orders", 1)
	r.settled("MQRUN", "orders")
	want := seen{"orders.eu", header, string(data)}
	for i, got := range j.seen() {
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("call %d:\n%s", i+1, d)
		}
	}
	if n := len(j.seen()); n != 3 {
		t.Errorf("%d calls; want 3", n)
	}
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != 0 {
		t.Errorf("%d dead letters left", n)
	}
	if n := r.count("MQRUN_OTHERS", "done.others"); n != 1 {
		t.Errorf("the other pipeline handled the message %d times", n)
	}
	raw, err := l.js.Stream(t.Context(), "MQRUN")
	if err != nil {
		t.Fatal(err)
	}
	m, err := raw.GetMsg(t.Context(), p.Sequence)
	if err != nil || m.Header.Get("Nats-TTL") != "" || m.Header.Get("Mqrun-Reason") != "" || m.Header.Get("Nats-Msg-Id") != p.ID {
		t.Errorf("%v, %v", m, err)
	}
}

func TestReplayIsStoredOnceAndLeavesLines(t *testing.T) {
	j := &judge{}
	r := each(t, j.handle)
	for i := range 3 {
		r.pub("orders.x", fmt.Sprint("m", i))
		r.read("MQRUN_DLQ", "dlq.orders", i+1) // in this order
	}
	r.settled("MQRUN", "orders")
	j.passes()
	l := r.letters()
	p, err := l.Prepare(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != 3 || r.count(AuditStream, "mqrun.audit.>") != 0 {
		t.Errorf("preparing changed something: %d dead letters", n)
	}
	// Sent, and the process ends before the dead letter is removed.
	if _, err := l.js.PublishMsg(t.Context(), p.msg); err != nil {
		t.Fatal(err)
	}
	if p = r.replay(l, 1); !p.Duplicate {
		t.Errorf("%+v", p)
	}
	p, err = l.Prepare(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if string(p.Payload()) != "m1" {
		t.Errorf("payload %q", p.Payload())
	}
	p.Edit([]byte("better"))
	if err := l.Send(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	d, err := l.Read(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Purge(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range r.read("MQRUN_ORDERS", "done.orders", 2) {
		out = append(out, string(m.Data()))
	}
	r.settled("MQRUN", "orders")
	if slices.Sort(out); !slices.Equal(out, []string{"better", "m0"}) || r.count("MQRUN_ORDERS", "done.>") != 2 || r.count("MQRUN_DLQ", "dlq.>") != 0 {
		t.Errorf("outputs %q, %d dead letters", out, r.count("MQRUN_DLQ", "dlq.>"))
	}
	var lines []string
	for _, m := range r.read(AuditStream, "mqrun.audit.>", 3) {
		var a AuditLine
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %d by %s, edited %t", a.Action, a.Letter.Sequence, a.By, a.Before != a.After))
	}
	if want := []string{"replay 1 by somebody, edited false", "edit 2 by somebody, edited true", "purge 3 by somebody, edited false"}; !slices.Equal(lines, want) {
		t.Errorf("audit %q; want %q", lines, want)
	}

	// An edited one must not pass for its unedited twin.
	r.pub("orders.x", "m4")
	j.mu.Lock()
	j.pass = false
	j.mu.Unlock()
	r.pub("orders.x", "m5")
	r.eventually(func() error {
		if r.count("MQRUN_DLQ", "dlq.>") == 0 {
			return errors.New("no dead letter")
		}
		return nil
	})
	all, err := l.Find(t.Context(), Filter{})
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	if p, err = l.Prepare(t.Context(), all[0].Sequence); err != nil {
		t.Fatal(err)
	}
	if _, err := l.js.PublishMsg(t.Context(), p.msg); err != nil {
		t.Fatal(err)
	}
	p.Edit([]byte("late"))
	if err := l.Send(t.Context(), p); err == nil || !strings.Contains(err.Error(), "unedited") {
		t.Errorf("an edit that was dropped as a duplicate: %v", err)
	}
	if _, err := l.Read(t.Context(), all[0].Sequence); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	if _, err := l.Read(t.Context(), 1); !errors.Is(err, ErrNoLetter) {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestReplayOnAStrangersStream(t *testing.T) {
	j := &judge{}
	r := newRig(t, "plugins: {}\npipelines: {}\n", nil)
	r.native = map[string]native{"a": j.handle}
	st, err := r.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{"orders.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, filter := range map[string]string{"billing": "orders.>", "mail": "orders.us"} {
		if _, err := st.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: name, FilterSubject: filter}); err != nil {
			t.Fatal(err)
		}
	}
	r.apply(one)
	r.pub("orders.eu", "x", "Nats-Msg-Id", "theirs")
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	j.passes()
	p := r.replay(r.letters(), 1)
	if p.Subject != "orders.eu" || !slices.Equal(p.Readers, []string{"billing"}) || !strings.Contains(p.Warning, "these consumers get it too: billing") {
		t.Errorf("%+v", p)
	}
	r.read("MQRUN_ORDERS", "done.orders", 1)
	if n := r.count("THEIRS", "orders.eu"); n != 2 {
		t.Errorf("%d messages in their stream; want the original and the replay", n)
	}
}

// A message at the limit dies, comes back, and dies and comes back once more:
// its stream makes room for the headers of a replay, and only for those.
func TestDLQ04_LargestMessageComesBack(t *testing.T) {
	var calls atomic.Int64
	last := make(chan *host.Message, 1)
	r := each(t, func(m *host.Message, r *host.Result) error {
		if calls.Add(1) < 3 {
			r.Code = host.Reject
			return nil
		}
		last <- &host.Message{Data: bytes.Clone(m.Data), Header: maps.Clone(m.Header)}
		emit(r, "", "ok")
		return nil
	})
	m := &nats.Msg{Subject: "orders.big", Header: nats.Header{"Nats-Msg-Id": {"big"}, "H": {"v", "w"}}}
	m.Data = bytes.Repeat([]byte("b"), int(r.m.o.MaxPayload)-deadRoom-headerSize(m.Header))
	if _, err := r.js().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	size := func() int32 {
		st, err := r.js().Stream(t.Context(), "MQRUN")
		if err != nil {
			t.Fatal(err)
		}
		return st.CachedInfo().Config.MaxMsgSize
	}
	before := size()
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	l := r.letters()
	r.replay(l, 1)
	r.eventually(func() error { // dead again
		_, err := l.Read(t.Context(), 2)
		return err
	})
	r.replay(l, 2)
	r.read("MQRUN_ORDERS", "done.orders", 1)
	if got := <-last; !bytes.Equal(got.Data, m.Data) || !slices.Equal(got.Header["H"], []string{"v", "w"}) {
		t.Errorf("%d bytes of %d came back, headers %v", len(got.Data), len(m.Data), got.Header)
	}
	if after := size(); after != before {
		t.Errorf("max_msg_size was %d and is %d", before, after)
	}
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

func TestReplayRefusals(t *testing.T) {
	j := &judge{}
	r := each(t, j.handle)
	r.pub("orders.x", "small")
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	r.settled("MQRUN", "orders")
	l := r.letters()

	// A stub stands for a message that had no room in the dead letters.
	d := dead{reason: "rejected", at: time.Now()}
	p := r.m.running()[0].(*pipeline)
	stub := func(sequence uint64) {
		m, err := l.js.Stream(t.Context(), "MQRUN")
		if err != nil {
			t.Fatal(err)
		}
		src := &source{stream: "MQRUN", ident: newIdentity("orders", "MQRUN", m.CachedInfo().Created), redo: p.sources[0].redo}
		s := &slot{src: src, subject: "orders.x", msg: &nats.Msg{Subject: "orders.x", Data: make([]byte, 1<<20)}}
		s.info.Sequence = sequence
		h, data := deadLetter("orders", s, d, 1<<20)
		h[hdrMsgID] = []string{src.ident.id(sequence, "dlq")}
		if _, err := l.js.PublishMsg(t.Context(), &nats.Msg{Subject: "dlq.orders", Header: h, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	full := int(l.nc.MaxPayload() - deadRoom)
	first := r.pub("orders.big", strings.Repeat("b", full-64), "H", "v").Sequence
	r.read("MQRUN_DLQ", "dlq.orders", 2)
	r.settled("MQRUN", "orders")
	j.passes()
	good := r.pub("orders.x", "good").Sequence
	r.read("MQRUN_ORDERS", "done.orders", 1)
	stub(good)
	stub(999)
	if restored, err := l.Restore(t.Context(), 3); err != nil || string(restored.Data) != "good" {
		t.Errorf("stub restored: %q, %v", restored.Data, err)
	}
	fails := func(sequence uint64, want string) {
		t.Helper()
		if _, err := l.Prepare(t.Context(), sequence); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("dead letter %d: %v; want %q", sequence, err, want)
		}
	}
	fails(4, "it is a stub, because the message was too large for a copy, and the original (message 999 of stream MQRUN) is gone")
	if p, err := l.Prepare(t.Context(), 2); err != nil || len(p.Payload()) != full-64 {
		t.Errorf("message at the limit: %v", err)
	}
	if restored, err := l.Restore(t.Context(), 2); err != nil || len(restored.Data) != full-64 || restored.Header.Get("H") != "v" || first == 0 {
		t.Errorf("message at the limit: %d bytes, %v", len(restored.Data), err)
	}

	r.stopManager()
	if err := r.js().DeleteConsumer(t.Context(), "MQRUN", "mqrun-orders"); err != nil {
		t.Fatal(err)
	}
	fails(1, "pipeline orders does not read mqrun.MQRUN.redo.orders")
	if err := r.js().DeleteStream(t.Context(), "MQRUN"); err != nil {
		t.Fatal(err)
	}
	fails(1, "the stream MQRUN that it came from is gone")
	fails(3, "the stream MQRUN that it came from is gone")
	r.restartManager(one)
}

func TestFilter(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := Letter{Sequence: 7, Time: at, Pipeline: "orders", Plugin: "parse@sha256:0123456789ab", Reason: "retry", Subject: "orders.eu.se"}
	for _, tt := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Pipeline: "orders", Reason: "retry"}, true},
		{Filter{Pipeline: "orders", Reason: "trap"}, false},
		{Filter{Digest: "0123"}, true},
		{Filter{Digest: "0123456789ABcdef"}, true},
		{Filter{Digest: "1234"}, false},
		{Filter{Since: at}, true},
		{Filter{Since: at.Add(1)}, false},
		{Filter{Until: at}, false},
		{Filter{Until: at.Add(1)}, true},
		{Filter{Subject: "orders.*.se"}, true},
		{Filter{Subject: "orders.*"}, false},
		{Filter{Subject: "orders.eu.se"}, true},
	} {
		if got := tt.f.match(l); got != tt.want {
			t.Errorf("%s: %t", tt.f, got)
		}
	}
}

func TestHDR03_UnsendableHeaderIsKeptAsAField(t *testing.T) {
	j := &judge{}
	r := each(t, j.handle)
	// Only a client that writes bytes of its own sends such a name.
	ack := r.rawPublish("orders.x", "NATS/1.0\r\nbad key: v1\r\nGood: g\r\na/b: v2\r\n\r\n", "data")
	if !bytes.Contains(ack, []byte(`"seq":1`)) {
		t.Fatalf("%s", ack)
	}
	m := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	fields := slices.Sorted(slices.Values(m.Headers()[hdrUnsendable]))
	if want := []string{"YS9iOiB2Mg==", "YmFkIGtleTogdjE="}; !slices.Equal(fields, want) || m.Headers().Get("Good") != "g" {
		t.Errorf("%q; headers %v", fields, m.Headers())
	}
	p, err := r.letters().Prepare(t.Context(), 1)
	if err != nil || !strings.Contains(p.Warning, "2 header fields have names that cannot be sent again") {
		t.Errorf("%+v, %v", p, err)
	}
}
