package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

// Two processes share the durable, and a handler takes longer than ack_wait.
func TestACK01_TwoProcessesHandleEachMessageOnce(t *testing.T) {
	var calls, second atomic.Int64
	slow := func(*host.Message, *host.Result) error {
		time.Sleep(1300 * time.Millisecond) // the handler's work
		return nil
	}
	yaml := strings.Replace(one, "ack_wait: 1s", "ack_wait: 1s, workers: 2, max_in_flight: 4", 1)
	r := newRig(t, yaml, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		emit(r, "", "ok")
		return slow(m, r)
	}})
	o := r.m.o
	o.StoreDir = "" // the journal is the first one's
	other, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	load := r.m.load
	other.load = load
	r.native["a"] = func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		second.Add(1)
		emit(r, "", "ok")
		return slow(m, r)
	}
	if _, err := other.Apply(t.Context(), r.m.Config()); err != nil {
		t.Fatal(err)
	}
	const n = 12
	for i := range n {
		r.pub("orders.x", fmt.Sprint(i))
	}
	r.read("MQRUN_ORDERS", "done.orders", n)
	r.settled("MQRUN", "orders")
	if calls.Load() != n || second.Load() == 0 || second.Load() == n {
		t.Errorf("%d calls for %d messages, %d of them in the second process", calls.Load(), n, second.Load())
	}
	if late := r.m.Status()[0].LateAcks + other.Status()[0].LateAcks; late != 0 {
		t.Errorf("%d late acks", late)
	}
}

// One of two processes is stopped: the durable stays, and the other goes on.
func TestACK08_SurvivorGoesOn(t *testing.T) {
	var calls atomic.Int64
	r := each(t, func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		emit(r, "", "ok")
		return nil
	})
	o := r.m.o
	o.StoreDir = "" // the journal is the first one's
	other, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	other.load = r.m.load
	if _, err := other.Apply(t.Context(), r.m.Config()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r.pub("orders.x", fmt.Sprint(i))
	}
	r.read("MQRUN_ORDERS", "done.orders", 20)
	r.settled("MQRUN", "orders")
	if err := other.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.pub("orders.x", fmt.Sprint("later", i))
	}
	r.read("MQRUN_ORDERS", "done.orders", 30)
	r.settled("MQRUN", "orders")
	r.stopManager()
	if _, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders"); err != nil {
		t.Errorf("after both have stopped: %v", err)
	}
	if n := calls.Load(); n != 30 {
		t.Errorf("%d calls for 30 messages", n)
	}
	r.restartManager(one)
}

// A process that stood still for longer than ack_wait says so: its ack is
// confirmed all the same, and somebody else may have handled the message.
func TestACK01_LateAckIsCounted(t *testing.T) {
	var off atomic.Int64
	r := each(t, func(m *host.Message, r *host.Result) error {
		off.Store(int64(time.Minute))
		emit(r, "", "ok")
		return nil
	})
	r.m.running()[0].(*pipeline).now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	r.pub("orders.x", "1")
	r.read("MQRUN_ORDERS", "done.orders", 1)
	r.idle("orders")
	if s := r.m.Status()[0]; s.LateAcks != 1 || s.Acked != 1 {
		t.Errorf("%+v", s)
	}
}

// copyAll emits what it got, headers and all, as a guest can.
func copyAll(m *host.Message, r *host.Result) error {
	var fields []host.Field
	for name, values := range m.Header {
		if hasPrefixFold(name, prefixNats) || hasPrefixFold(name, prefixOurs) {
			continue
		}
		for _, v := range values {
			fields = append(fields, host.Field{Name: name, Value: v})
		}
	}
	emit(r, "", string(m.Data), fields...)
	return nil
}

func TestHDR01_BytesReachTheNextStage(t *testing.T) {
	last := &judge{}
	r := newRig(t, `
plugins: { a: { module: a.wasm }, b: { module: b.wasm }, c: { module: c.wasm } }
pipelines:
  first: { from: ingest.x, steps: [a, b], to: mid.x }
  second: { from: mid.x, steps: [c], to: end.x }
`, map[string]native{"a": copyAll, "b": copyAll, "c": last.handle})
	header := nats.Header{"x-trace-id": {"abc"}, "X-Trace-Id": {"other"}, "Multi": {"a", "b", "a"}, "bin": {"\xff\xfe"}, "Empty": {"", "x"}}
	data := "\x00\xff\r\n\xc3\x28"
	if _, err := r.js().PublishMsg(t.Context(), &nats.Msg{Subject: "ingest.x", Header: header, Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
	dead := r.read("MQRUN_DLQ", "dlq.second", 1)[0]
	got := last.seen()[0]
	// Of names that differ only in case the last one overlays the others.
	if d := cmp.Diff(seen{"mid.x", header, data}, got); d != "" {
		t.Error(d)
	}
	for k, v := range header {
		if got := dead.Headers()[k]; !slices.Equal(got, v) {
			t.Errorf("dead letter: %s %q; want %q", k, got, v)
		}
	}
	if string(dead.Data()) != data {
		t.Errorf("dead letter: payload %q", dead.Data())
	}
}

func TestHDR05_EmptyPayload(t *testing.T) {
	rt, err := host.New(t.Context(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	r := newRig(t, "plugins: {}\npipelines: {}\n", nil)
	r.m.load = sandboxed(rt, nil)
	echo, err := os.ReadFile("../host/testdata/echo.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "a.wasm"), echo, 0o600); err != nil {
		t.Fatal(err)
	}
	defer r.stopManager() // before the runtime
	r.apply(one)
	r.pub("orders.x", "")
	r.pub("orders.x", "", "Signal", "go")
	r.pub("orders.x", "full")
	sizes := map[int]int{}
	for _, m := range r.read("MQRUN_ORDERS", "done.orders", 3) {
		sizes[len(m.Data())]++
	}
	r.settled("MQRUN", "orders")
	r.idle("orders")
	if s := r.m.Status()[0]; s.Handled != 3 || s.Outputs != 3 || sizes[0] != 2 || sizes[4] != 1 {
		t.Errorf("%+v, outputs by size %v", s, sizes)
	}
}

func TestHDR05_EmptyPayloadDiesAndComesBack(t *testing.T) {
	j := &judge{}
	r := each(t, j.handle)
	r.pub("orders.x", "", "Signal", "go")
	if m := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]; len(m.Data()) != 0 || m.Headers().Get("Signal") != "go" || m.Headers().Get("Mqrun-Stub") != "" {
		t.Errorf("%q, %v", m.Data(), m.Headers())
	}
	j.passes()
	r.replay(r.letters(), 1)
	if m := r.read("MQRUN_ORDERS", "done.orders", 1)[0]; len(m.Data()) != 0 {
		t.Errorf("%q", m.Data())
	}
	if all := j.seen(); len(all) != 2 || all[1].Header["Signal"][0] != "go" {
		t.Errorf("%v", all)
	}
}

func TestHDR06_OnlyJetStreamIsHandledAndAcked(t *testing.T) {
	r := each(t, copyAll)
	for _, from := range []string{">", "$JS.>", "$SYS.>", "_INBOX.>", "*.x"} {
		text := strings.Replace(one, `"orders.>"`, fmt.Sprintf("%q", from), 1)
		if err := os.WriteFile(filepath.Join(r.dir, "bad.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(config.LoadOptions{Files: []string{filepath.Join(r.dir, "bad.yaml")}})
		if _, ok := errors.AsType[config.Problems](err); !ok {
			t.Errorf("from %s: %v", from, err)
		}
	}
	for i := range 100 {
		r.pub("orders.x", fmt.Sprint(i))
		name := fmt.Sprint("S", i)
		if _, err := r.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
			t.Fatal(err)
		}
		if err := r.js().DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	r.read("MQRUN_ORDERS", "done.orders", 100)
}

func TestHDR08_RequesterGetsTheStreamsWord(t *testing.T) {
	r := each(t, copyAll)
	nc, err := r.mq.Connect("requester")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("orders.req", inbox, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil || !bytes.Contains(m.Data, []byte(`"stream":"MQRUN"`)) {
		t.Fatalf("%v, %v", m, err)
	}
	r.read("MQRUN_ORDERS", "done.orders", 1)
	r.settled("MQRUN", "orders")
	if n, _, err := sub.Pending(); err != nil || n != 0 {
		t.Errorf("%d more replies, %v: an output is no reply", n, err)
	}
}

func TestHDR09_OddSubjectsDieOnceUnderTheirName(t *testing.T) {
	j := &judge{}
	r := each(t, j.handle)
	odd := []string{"orders.*", "orders.>", "orders.é", "orders.\x01", "orders" + strings.Repeat(".t", 199), "orders.a*b", "orders.%2E"}
	for i, s := range odd {
		if ack := r.rawPublish(s, "NATS/1.0\r\n\r\n", fmt.Sprint(i)); !bytes.Contains(ack, []byte(`"seq"`)) {
			t.Fatalf("%q: %s", s, ack)
		}
	}
	var got []string
	for _, m := range r.read("MQRUN_DLQ", "dlq.orders", len(odd)) {
		got = append(got, m.Headers().Get("Mqrun-Subject"))
	}
	r.settled("MQRUN", "orders")
	if d := cmp.Diff(slices.Sorted(slices.Values(odd)), slices.Sorted(slices.Values(got))); d != "" {
		t.Error(d)
	}
	if n := r.count("MQRUN_DLQ", ">"); n != len(odd) {
		t.Errorf("%d dead letters of %d messages", n, len(odd))
	}
	j.passes()
	l := r.letters()
	for i := range odd {
		r.replay(l, uint64(i+1))
	}
	r.read("MQRUN_ORDERS", "done.orders", len(odd))
	var again []string
	for _, s := range j.seen()[len(odd):] {
		again = append(again, s.Subject)
	}
	if d := cmp.Diff(slices.Sorted(slices.Values(odd)), slices.Sorted(slices.Values(again))); d != "" {
		t.Error(d)
	}
}

func TestHDR10_SubjectOfAnothersStream(t *testing.T) {
	r := newRig(t, "plugins: {}\npipelines: {}\n", nil)
	r.native = map[string]native{"a": copyAll}
	theirs, err := r.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: "ALL", Subjects: []string{"orders.>"}})
	if err != nil {
		t.Fatal(err)
	}
	// A part of it is used where it is.
	r.apply(strings.Replace(one, "orders.>", "orders.eu.>", 1))
	r.pub("orders.eu.x", "1")
	r.read("MQRUN_ORDERS", "done.orders", 1)
	if _, err := r.js().Consumer(t.Context(), "ALL", "mqrun-orders"); err != nil {
		t.Error(err)
	}
	// What lies across it, or is asked for in a stream of its own, is refused by name.
	for _, yaml := range []string{
		one + "streams: { OTHER: { subjects: [\"orders.>\"] } }\n",
		strings.Replace(one, "orders.>", "orders.eu.>", 1) + "streams: { ORDERS: { subjects: [\"orders.eu.>\"] } }\n",
		strings.NewReplacer("orders.>", "orders.us.>", "to: done.orders", "to: orders.eu.done").Replace(one),
	} {
		cfg, err := r.tryLoad(yaml)
		if err == nil {
			_, err = r.m.Apply(t.Context(), cfg)
		}
		if err == nil {
			t.Errorf("applied:\n%s", yaml)
		} else if !strings.Contains(err.Error(), "ALL") {
			t.Errorf("%v", err)
		}
	}
	info, err := theirs.Info(t.Context())
	if err != nil || !slices.Equal(info.Config.Subjects, []string{"orders.>"}) || len(info.Config.Metadata["mqrun"]) != 0 {
		t.Errorf("their stream is %+v, %v", info.Config, err)
	}
	// A subject in no stream gets one: no pipeline waits for ever behind a filter.
	r.apply(strings.Replace(one, "orders.>", "payments.>", 1))
	r.pub("payments.x", "2")
	r.read("MQRUN_ORDERS", "done.orders", 2)
}

// The largest message that its stream takes is a dead letter with all that it
// had and all that is said about it.
func TestDLQ04_LargestMessageIsDeadLettered(t *testing.T) {
	r := each(t, func(m *host.Message, r *host.Result) error {
		r.Code, r.Reason = host.Reject, strings.Repeat("why ", 2000)
		r.Log = bytes.Repeat([]byte("log\n"), 1000)
		return nil
	})
	m := &nats.Msg{Subject: "orders.x", Header: nats.Header{"Nats-Msg-Id": {strings.Repeat("i", 200)}}}
	for i := range 100 {
		m.Header[fmt.Sprintf("H%03d", i)] = []string{strings.Repeat("v", 100), "w"}
	}
	m.Data = bytes.Repeat([]byte{0xff}, int(r.m.o.MaxPayload)-deadRoom-headerSize(m.Header))
	if _, err := r.js().PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	d := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	r.settled("MQRUN", "orders")
	if h := d.Headers(); !bytes.Equal(d.Data(), m.Data) || len(h["H099"]) != 2 || h.Get("Mqrun-Stub") != "" || len(h.Get("Mqrun-Original-Nats-Msg-Id")) != 200 {
		t.Errorf("%d bytes, headers %d", len(d.Data()), len(h))
	}
	m.Data = append(m.Data, 0)
	m.Header.Set("Nats-Msg-Id", strings.Repeat("j", 200))
	if _, err := r.js().PublishMsg(t.Context(), m); err == nil {
		t.Error("the stream takes more than the dead letters can hold")
	}
}

func TestDLQ06_DeadLettersFeedNoPipeline(t *testing.T) {
	j := &judge{}
	r := each(t, j.handle)
	r.pub("orders.eu.se", "x")
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	r.settled("MQRUN", "orders")
	if a, b := r.count("MQRUN", ">"), r.count("MQRUN_DLQ", ">"); a != 1 || b != 1 || len(j.seen()) != 1 {
		t.Errorf("%d messages, %d dead letters, %d calls", a, b, len(j.seen()))
	}
	for _, change := range []string{
		strings.Replace(one, "to: done.orders", "to: done.orders, dead_letter: orders.dlq", 1),
		strings.Replace(one, `from: "orders.>"`, `from: "dlq.>"`, 1),
	} {
		if cfg, err := r.tryLoad(change); err == nil {
			if _, err = r.m.Apply(t.Context(), cfg); err == nil {
				t.Errorf("applied:\n%s", change)
			}
		}
	}
}
