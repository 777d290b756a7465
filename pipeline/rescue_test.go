package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
)

func retryAlways(m *host.Message, r *host.Result) error {
	r.Code, r.Reason = host.Retry, "not yet"
	return nil
}

// maxDeliver is what an operator does with a tool.
func (r *rig) maxDeliver(stream, pipeline string, n int) {
	r.t.Helper()
	c, err := r.js().Consumer(r.ctx(), stream, durable(pipeline))
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := c.CachedInfo().Config
	cfg.MaxDeliver = n
	if _, err := r.js().UpdateConsumer(r.ctx(), stream, cfg); err != nil {
		r.t.Fatal(err)
	}
}

func checkHeaders(t *testing.T, h map[string][]string, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got := get(h, k); got != v {
			t.Errorf("%s: %q; want %q", k, got, v)
		}
	}
}

func TestDLQ03_ServerGivesUp(t *testing.T) {
	yaml := strings.Replace(one, "attempts: 3", "attempts: 12", 1)
	r := newRig(t, yaml, map[string]native{"a": retryAlways})
	r.maxDeliver("MQRUN", "orders", 2)
	for i := range 5 {
		r.pub("orders.x", fmt.Sprint("m", i), "Nats-Msg-Id", fmt.Sprint("in", i), "Multi", "a", "Multi", "b")
	}
	seen := map[string]bool{}
	for _, m := range r.read("MQRUN_DLQ", "dlq.orders", 5) {
		seen[string(m.Data())] = true
		checkHeaders(t, m.Headers(), map[string]string{
			"Mqrun-Reason": "max_deliveries", "Mqrun-Deliveries": "2", "Mqrun-Attempts": "2", "Mqrun-Exhausted": "true",
			"Mqrun-Stream": "MQRUN", "Mqrun-Subject": "orders.x", "Mqrun-Pipeline": "orders",
			"Mqrun-Error": "the server gave the message up after 2 deliveries: somebody set max_deliver on the consumer mqrun-orders; its last failure: retry: not yet",
		})
		if v := m.Headers()["Multi"]; len(v) != 2 || v[0] != "a" || v[1] != "b" {
			t.Errorf("Multi %q", v)
		}
		if id := m.Headers().Get("Mqrun-Original-Nats-Msg-Id"); !strings.HasPrefix(id, "in") {
			t.Errorf("original id %q", id)
		}
	}
	if len(seen) != 5 {
		t.Errorf("dead letters of %v", seen)
	}

	// The host's own dead letter of the same messages has the same id.
	r.stopManager()
	if err := r.js().DeleteConsumer(t.Context(), "MQRUN", "mqrun-orders"); err != nil {
		t.Fatal(err)
	}
	r.restartManager(strings.Replace(one, "attempts: 3", "attempts: 2", 1))
	r.settled("MQRUN", "orders")
	r.eventually(func() error {
		if s := r.m.Status()[0]; s.Dead != 5 {
			return fmt.Errorf("%d dead", s.Dead)
		}
		return nil
	})
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != 5 {
		t.Errorf("%d dead letters of 5 messages", n)
	}
}

func TestDLQ02_SomebodyTerminates(t *testing.T) {
	r := each(t, retryAlways)
	r.stopManager()
	r.pub("orders.x", "payload")
	c, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	r.restartManager(one)
	if err := m.TermWithReason("operator's choice"); err != nil {
		t.Fatal(err)
	}
	d := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	checkHeaders(t, d.Headers(), map[string]string{
		"Mqrun-Reason": "terminated", "Mqrun-Exhausted": "false", "Mqrun-Sequence": "1",
		"Mqrun-Error": "somebody terminated the message at the server: operator's choice",
	})
	if string(d.Data()) != "payload" {
		t.Errorf("payload %q", d.Data())
	}
}

// A message that the server gives up while its handler runs is decided by
// what the handler says.
func TestDLQ02_TerminatedInWork(t *testing.T) {
	for _, tt := range []struct {
		code      int32
		dead, out int
	}{{host.OK, 0, 1}, {host.Retry, 1, 0}} {
		t.Run(fmt.Sprint(tt.code), func(t *testing.T) {
			begun, gate := make(chan struct{}), make(chan struct{})
			r := each(t, func(m *host.Message, r *host.Result) error {
				begun <- struct{}{}
				<-gate
				r.Code = tt.code
				if r.Code == host.OK {
					emit(r, "", "done")
				}
				return nil
			})
			r.pub("orders.x", "payload")
			<-begun
			p := r.m.running()[0].(*pipeline)
			s := p.slots.holding(p.sources[0], 1)
			if _, err := p.broker.out.Request(s.reply, []byte("+TERM"), flushWait); err != nil {
				t.Fatal(err)
			}
			r.eventually(func() error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.orphan == nil {
					return fmt.Errorf("the advisory has not arrived")
				}
				return nil
			})
			close(gate)
			if tt.dead > 0 {
				r.read("MQRUN_DLQ", "dlq.orders", tt.dead)
			}
			if tt.out > 0 {
				r.read("MQRUN_ORDERS", "done.orders", tt.out)
			}
			r.idle("orders")
			if d, o := r.count("MQRUN_DLQ", "dlq.>"), r.count("MQRUN_ORDERS", "done.>"); d != tt.dead || o != tt.out {
				t.Errorf("%d dead letters and %d outputs; want %d and %d", d, o, tt.dead, tt.out)
			}
		})
	}
}

func TestDLQ03_ParkedWhileNobodyListened(t *testing.T) {
	r := newRig(t, "plugins: {}\npipelines: {}\n", nil)
	r.native = map[string]native{"a": func(m *host.Message, r *host.Result) error {
		emit(r, "", string(m.Data))
		return nil
	}}
	if _, err := r.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: "WORK", Subjects: []string{"work.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	const yaml = `
plugins: { a: { module: a.wasm } }
pipelines:
  orders: { from: "work.>", steps: [a], to: done.orders }
`
	r.apply(yaml)
	r.stopManager()
	r.maxDeliver("WORK", "orders", 2)
	c, err := r.js().Consumer(t.Context(), "WORK", "mqrun-orders")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.pub("work.x", fmt.Sprint("m", i))
	}
	for range 5 { // m0 is acked, m1 and m2 are given up after two deliveries
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data()) == "m0" {
			err = m.DoubleAck(t.Context())
		} else {
			err = m.Nak()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.eventually(func() error { // the server gives up when it is asked for the next one
		if _, err := c.Fetch(1, jetstream.FetchMaxWait(50*time.Millisecond)); err != nil {
			return err
		}
		if i, err := c.Info(t.Context()); err != nil || i.NumAckPending != 0 || i.Delivered.Stream != 3 {
			return fmt.Errorf("%+v, %w", i, err)
		}
		return nil
	})
	if n := r.count("WORK", "work.>"); n != 2 {
		t.Fatalf("%d messages; want the parked ones", n)
	}

	r.restartManager(yaml)
	var dead []string
	for _, m := range r.read("MQRUN_DLQ", "dlq.orders", 2) {
		dead = append(dead, string(m.Data()))
		checkHeaders(t, m.Headers(), map[string]string{"Mqrun-Reason": "max_deliveries", "Mqrun-Stream": "WORK"})
	}
	r.eventually(func() error {
		if n := r.count("WORK", "work.>"); n != 0 {
			return fmt.Errorf("%d messages are still in the work queue", n)
		}
		return nil
	})
	if slices.Sort(dead); !slices.Equal(dead, []string{"m1", "m2"}) {
		t.Errorf("dead letters %q; want m1 and m2", dead)
	}
}
