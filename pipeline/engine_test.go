package pipeline

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
)

const one = `
plugins: { a: { module: a.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [a], to: done.orders, ack_wait: 1s, retry: { attempts: 3, initial: 20ms, factor: 1, max: 20ms, jitter: 0 } }
`

// each runs body against a pipeline "orders" whose only step is f.
func each(t *testing.T, f native) *rig { return newRig(t, one, map[string]native{"a": f}) }

func TestChainedPipelines(t *testing.T) {
	r := newRig(t, `
plugins:
  split: { module: split.wasm }
  up: { module: up.wasm }
  route: { module: route.wasm, allow: { publish: [end.odd, end.even] } }
pipelines:
  first: { from: ingest.a, steps: [split], to: mid.a }
  second: { from: mid.a, steps: [up, route] }
`, map[string]native{
		"split": func(m *host.Message, r *host.Result) error {
			emit(r, "", string(m.Data)+"x")
			emit(r, "", string(m.Data)+"y", host.Field{Name: "From", Value: "split"})
			return nil
		},
		"up": func(m *host.Message, r *host.Result) error {
			emit(r, "", strings.ToUpper(string(m.Data)), host.Field{Name: "Step", Value: "up"})
			return nil
		},
		"route": func(m *host.Message, r *host.Result) error {
			if m.Subject != "mid.a" || get(m.Header, "step") != "up" {
				return fmt.Errorf("second step sees subject %q and headers %v", m.Subject, m.Header)
			}
			if strings.HasSuffix(string(m.Data), "X") {
				emit(r, "end.odd", string(m.Data), host.Field{Name: "Kind", Value: get(m.Header, "from")})
			} else {
				emit(r, "end.even", string(m.Data), host.Field{Name: "Kind", Value: get(m.Header, "from")})
			}
			return nil
		},
	})
	const n = 500
	for i := range n {
		r.pub("ingest.a", fmt.Sprintf("m%d", i))
	}
	odd, even := r.read("MQRUN_SECOND", "end.odd", n), r.read("MQRUN_SECOND", "end.even", n)
	r.settled("MQRUN", "first")
	r.settled("MQRUN_FIRST", "second")
	if a, b := r.count("MQRUN_SECOND", "end.odd"), r.count("MQRUN_SECOND", "end.even"); a != n || b != n {
		t.Errorf("%d odd and %d even; want %d each", a, b, n)
	}
	seen := map[string]bool{}
	for _, m := range append(odd, even...) {
		seen[string(m.Data())] = true
	}
	if len(seen) != 2*n {
		t.Errorf("%d distinct outputs; want %d", len(seen), 2*n)
	}
	if h := even[0].Headers(); h.Get("Kind") != "split" || h.Get("From") != "" {
		t.Errorf("output headers %v: want what the last step emitted and nothing of the input", h)
	}
}

func TestACK02_AckWaitIsKept(t *testing.T) {
	var calls atomic.Int64
	r := each(t, func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		time.Sleep(1500 * time.Millisecond) // the handler's work, longer than ack_wait
		emit(r, "", "ok")
		return nil
	})
	c, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
	if err != nil {
		t.Fatal(err)
	}
	if cfg := c.CachedInfo().Config; cfg.AckWait != time.Second || len(cfg.BackOff) != 0 || cfg.MaxDeliver != -1 {
		t.Errorf("the server holds ack_wait %v, backoff %v, max_deliver %d", cfg.AckWait, cfg.BackOff, cfg.MaxDeliver)
	}
	for i := range 6 {
		r.pub("orders.a", fmt.Sprint(i))
	}
	r.read("MQRUN_ORDERS", "done.orders", 6)
	r.settled("MQRUN", "orders")
	if n := calls.Load(); n != 6 {
		t.Errorf("%d handler calls for 6 messages", n)
	}
	r.delivered(6)
}

// delivered checks that the server gave out so many: a handler is not called
// twice for a delivery that comes while it runs, so calls alone do not show it.
func (r *rig) delivered(want uint64) {
	r.t.Helper()
	c, err := r.js().Consumer(r.t.Context(), "MQRUN", "mqrun-orders")
	if err != nil {
		r.t.Fatal(err)
	}
	if got := c.CachedInfo().Delivered.Consumer; got != want {
		r.t.Errorf("%d deliveries; want %d", got, want)
	}
}

func TestACK04_RetryIsDelayed(t *testing.T) {
	var mu sync.Mutex
	var at []time.Time
	r := newRig(t, strings.Replace(one, "attempts: 3, initial: 20ms, factor: 1, max: 20ms", "attempts: 5, initial: 100ms, factor: 2, max: 5s", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		if len(at) < 5 {
			r.Code = host.Retry
			return nil
		}
		emit(r, "", "ok")
		return nil
	}})
	r.pub("orders.a", "x")
	r.read("MQRUN_ORDERS", "done.orders", 1)
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	want := 100 * time.Millisecond
	for i := 1; i < len(at); i++ {
		if gap := at[i].Sub(at[i-1]); gap < want {
			t.Errorf("attempt %d came %v after the one before; the policy says %v", i+1, gap, want)
		}
		want *= 2
	}
}

func TestACK05_LongHandlerIsKeptAlive(t *testing.T) {
	var calls atomic.Int64
	begun := make(chan struct{}, 10)
	r := each(t, func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		begun <- struct{}{}
		time.Sleep(4 * time.Second) // four times ack_wait
		emit(r, "", "ok")
		return nil
	})
	r.pub("orders.a", "x")
	<-begun
	for _, nc := range []*nats.Conn{r.m.broker.in, r.m.broker.out} { // one extension may get lost
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
	}
	r.read("MQRUN_ORDERS", "done.orders", 1)
	r.settled("MQRUN", "orders")
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	r.delivered(1)
	if s := r.m.Status()[0]; s.LateAcks != 0 {
		t.Errorf("%d late acks", s.LateAcks)
	}
}

func TestACK06_OutputIsConfirmedBeforeTheAck(t *testing.T) {
	gate := make(chan struct{})
	r := each(t, func(m *host.Message, r *host.Result) error {
		<-gate
		emit(r, "", string(m.Data))
		return nil
	})
	s, err := r.js().Stream(t.Context(), "MQRUN_ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	if err := r.js().DeleteStream(t.Context(), cfg.Name); err != nil {
		t.Fatal(err)
	}
	close(gate)
	for i := range 5 {
		r.pub("orders.a", fmt.Sprint(i))
	}
	r.eventually(func() error {
		r.nothingAcked()
		if st := r.m.Status()[0]; st.State != StateBlocked || !strings.Contains(st.Why, "done.orders") {
			return fmt.Errorf("state %s %q", st.State, st.Why)
		}
		return nil
	})
	r.nothingAcked()
	if _, err := r.js().CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.read("MQRUN_ORDERS", "done.orders", 5)
	r.idle("orders")
	if st := r.m.Status()[0]; st.State != StateRunning || st.Handled != 5 {
		t.Errorf("state %s, handled %d; want running, 5", st.State, st.Handled)
	}
}

// nothingAcked fails at once when the pipeline has acked a message.
func (r *rig) nothingAcked() {
	r.t.Helper()
	c, err := r.js().Consumer(r.ctx(), "MQRUN", "mqrun-orders")
	if err != nil {
		r.t.Fatal(err)
	}
	if i := c.CachedInfo(); int(i.Delivered.Stream) > i.NumAckPending {
		r.t.Fatalf("%d of %d messages are acked, with nothing stored for them", int(i.Delivered.Stream)-i.NumAckPending, i.Delivered.Stream)
	}
}

// again makes the consumer forget its acks, as a crash between an output's
// PubAck and the ack does: everything is delivered again.
func (r *rig) again() {
	r.t.Helper()
	r.stopManager()
	if err := RemoveDurable(r.ctx(), r.js(), Durable{Stream: "MQRUN", Name: "mqrun-orders", Pipeline: "orders"}); err != nil {
		r.t.Fatal(err)
	}
	r.restartManager(one)
}

func TestACK07_CrashBetweenPublishAndAck(t *testing.T) {
	var calls atomic.Int64
	r := each(t, func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		for i := range 3 {
			emit(r, "", fmt.Sprintf("%s %d", m.Data, i))
		}
		return nil
	})
	r.pub("orders.a", "same")
	r.pub("orders.a", "same") // no id of its own, same body
	r.pub("orders.a", "same", "Nats-Msg-Id", "")
	r.read("MQRUN_ORDERS", "done.orders", 9)
	r.settled("MQRUN", "orders")
	r.again()
	r.settled("MQRUN", "orders")
	if n := calls.Load(); n != 6 {
		t.Fatalf("%d handler calls: the redelivery was not seen", n)
	}
	ids := map[string]bool{}
	for _, m := range r.read("MQRUN_ORDERS", "done.orders", 9) {
		ids[m.Headers().Get("Nats-Msg-Id")] = true
	}
	if n := r.count("MQRUN_ORDERS", "done.orders"); n != 9 || len(ids) != 9 {
		t.Errorf("%d outputs with %d ids; want 9", n, len(ids))
	}
}

func TestACK08_StopKeepsTheDurable(t *testing.T) {
	var calls atomic.Int64
	r := each(t, func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		emit(r, "", "ok")
		return nil
	})
	for i := range 100 {
		r.pub("orders.a", fmt.Sprint(i))
	}
	r.read("MQRUN_ORDERS", "done.orders", 100)
	r.settled("MQRUN", "orders")
	r.stop()
	r.start()
	r.apply(one)
	r.pub("orders.a", "one more")
	r.read("MQRUN_ORDERS", "done.orders", 101)
	r.settled("MQRUN", "orders")
	if n := calls.Load(); n != 101 {
		t.Errorf("%d handler calls; want 101: the durable was lost", n)
	}
}

func TestDLQ01_DeadLetterIsConfirmedBeforeTheAck(t *testing.T) {
	gate := make(chan struct{})
	r := each(t, func(m *host.Message, r *host.Result) error {
		<-gate
		r.Code, r.Reason = host.Reject, "no"
		return nil
	})
	s, err := r.js().Stream(t.Context(), "MQRUN_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	if err := r.js().DeleteStream(t.Context(), "MQRUN_DLQ"); err != nil {
		t.Fatal(err)
	}
	r.pub("orders.a", "x")
	close(gate)
	r.eventually(func() error {
		r.nothingAcked()
		if st := r.m.Status()[0]; st.State != StateBlocked || st.Refused < 2 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	r.nothingAcked()
	if _, err := r.js().CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	r.idle("orders")
	if st := r.m.Status()[0]; st.Handled != 1 || st.Dead != 1 {
		t.Errorf("%+v", st)
	}
}

func TestDLQ03_ExhaustedMessagesAreDeadLettered(t *testing.T) {
	r := each(t, func(m *host.Message, r *host.Result) error {
		if m.MaxAttempts != 3 {
			return fmt.Errorf("attempts allowed %d", m.MaxAttempts)
		}
		r.Code, r.Reason = host.Retry, fmt.Sprintf("attempt %d", m.Attempt)
		return nil
	})
	for i := range 5 {
		r.pub("orders.eu.se", fmt.Sprintf("m%d", i), "X-A", "1", "X-A", "2", "nats-rollup-x", "v", "Nats-Msg-Id", fmt.Sprint("in", i), "Mqrun-Reason", "fake")
	}
	for i, m := range r.read("MQRUN_DLQ", "dlq.orders", 5) {
		h := m.Headers()
		for k, want := range map[string]string{
			"Mqrun-Reason": "retry", "Mqrun-Exhausted": "true", "Mqrun-Attempts": "3", "Mqrun-Code": "1", "Mqrun-Error": "attempt 3",
			"Mqrun-Stream": "MQRUN", "Mqrun-Subject": "orders.eu.se", "Mqrun-Pipeline": "orders", "Mqrun-Step": "a",
			"Mqrun-Plugin": "a@sha256:" + nativeDigest("a")[:12], "Mqrun-Generation": "1", "Mqrun-Deliveries": "3",
		} {
			if got := h.Get(k); got != want {
				t.Errorf("%s: %q; want %q", k, got, want)
			}
		}
		if got := h.Get("Mqrun-Original-Nats-Msg-Id"); !strings.HasPrefix(got, "in") {
			t.Errorf("original id %q", got)
		}
		if got := h["X-A"]; len(got) != 2 || got[0] != "1" || got[1] != "2" {
			t.Errorf("X-A %q", got)
		}
		if h.Get("Mqrun-Original-nats-rollup-x") != "v" || h.Get("Mqrun-Sequence") == "" || h.Get("Mqrun-Time") == "" {
			t.Errorf("message %d: headers %v", i, h)
		}
	}
	r.settled("MQRUN", "orders")
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != 5 {
		t.Errorf("%d dead letters", n)
	}
}

func TestDLQ05_RetriesComeBeforeTheDeadLetter(t *testing.T) {
	for name, fail := range map[string]func(*host.Result) error{
		"retry":   func(r *host.Result) error { r.Code = host.Retry; return nil },
		"trap":    func(*host.Result) error { return &host.CallError{Reason: "trap", Text: "unreachable"} },
		"timeout": func(*host.Result) error { return &host.CallError{Reason: "timeout", Text: "1s"} },
		"code":    func(r *host.Result) error { r.Code = 77; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			r := each(t, func(m *host.Message, r *host.Result) error {
				calls.Add(1)
				if m.Attempt < 3 {
					return fail(r)
				}
				emit(r, "", "ok")
				return nil
			})
			r.pub("orders.a", "x")
			r.read("MQRUN_ORDERS", "done.orders", 1)
			r.settled("MQRUN", "orders")
			if n, d := calls.Load(), r.count("MQRUN_DLQ", "dlq.>"); n != 3 || d != 0 {
				t.Errorf("%d calls, %d dead letters; want 3, 0", n, d)
			}
		})
	}
}

func TestDLQ07_CrashBetweenDeadLetterAndAck(t *testing.T) {
	var calls atomic.Int64
	r := each(t, func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		r.Code = host.Reject
		return nil
	})
	r.pub("orders.a", "x")
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	r.settled("MQRUN", "orders")
	r.again()
	r.settled("MQRUN", "orders")
	if n, d := calls.Load(), r.count("MQRUN_DLQ", "dlq.>"); n != 2 || d != 1 {
		t.Errorf("%d calls, %d dead letters; want 2, 1", n, d)
	}
}

func TestDLQ08_AttemptsLoweredByReload(t *testing.T) {
	var calls atomic.Int64
	third := make(chan struct{})
	r := newRig(t, strings.Replace(one, "attempts: 3, initial: 20ms, factor: 1, max: 20ms", "attempts: 10, initial: 300ms, factor: 1, max: 1s", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if calls.Add(1) == 3 {
			close(third)
		}
		r.Code = host.Retry
		return nil
	}})
	r.pub("orders.a", "x")
	<-third
	r.apply(strings.Replace(one, "attempts: 3", "attempts: 2", 1))
	m := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	if got := m.Headers().Get("Mqrun-Exhausted"); got != "true" {
		t.Errorf("exhausted %q", got)
	}
	r.settled("MQRUN", "orders")
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls", n)
	}
}

func TestAttemptsSurviveARestart(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, strings.Replace(one, "initial: 20ms, factor: 1, max: 20ms", "initial: 1s, factor: 1, max: 1s", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if int64(m.Attempt) != calls.Add(1) {
			return fmt.Errorf("attempt %d in call %d", m.Attempt, calls.Load())
		}
		r.Code = host.Retry
		return nil
	}})
	r.pub("orders.a", "x")
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.Retried != 1 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	r.again() // a new consumer: the delivery count starts again
	m := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	if got := m.Headers().Get("Mqrun-Attempts"); got != "3" || calls.Load() != 3 {
		t.Errorf("attempts %s, calls %d", got, calls.Load())
	}
}

func TestRedoReachesOnlyItsPipeline(t *testing.T) {
	var other atomic.Int64
	subjects := make(chan string, 1)
	r := newRig(t, `
plugins: { a: { module: a.wasm }, b: { module: b.wasm } }
pipelines:
  first: { from: orders.x, steps: [a], to: out.a }
  second: { from: orders.x, steps: [b], to: out.b }
`, map[string]native{
		"a": func(m *host.Message, r *host.Result) error { subjects <- m.Subject; return nil },
		"b": func(*host.Message, *host.Result) error { other.Add(1); return nil },
	})
	r.pub("mqrun.MQRUN.redo.first", "x", "Mqrun-Subject", "orders.x")
	if got := <-subjects; got != "orders.x" {
		t.Errorf("subject %q", got)
	}
	r.settled("MQRUN", "first")
	r.settled("MQRUN", "second")
	if n := other.Load(); n != 0 {
		t.Errorf("the other pipeline ran %d times", n)
	}
}

func TestFilteredAndTraced(t *testing.T) {
	r := each(t, func(m *host.Message, r *host.Result) error {
		if string(m.Data) == "drop" {
			r.Code = host.Drop
			return nil
		}
		emit(r, "", "", host.Field{Name: "A", Value: "1"}, host.Field{Name: "A", Value: "2"})
		return nil
	})
	r.pub("orders.a", "drop")
	r.pub("orders.a", "", "traceparent", "00-1-2-01", "Secret", "s")
	m := r.read("MQRUN_ORDERS", "done.orders", 1)[0]
	h := m.Headers()
	if h.Get("traceparent") != "00-1-2-01" || h.Get("Secret") != "" || len(h["A"]) != 2 || len(m.Data()) != 0 {
		t.Errorf("headers %v, data %q", h, m.Data())
	}
	r.idle("orders")
	if st := r.m.Status()[0]; st.Filtered != 1 || st.Acked != 2 || st.Outputs != 1 {
		t.Errorf("%+v", st)
	}
}

func TestDrainGivesBackWhatIsNotBegun(t *testing.T) {
	begun, gate := make(chan struct{}, 100), make(chan struct{})
	r := newRig(t, strings.Replace(one, "ack_wait: 1s", "ack_wait: 30s, workers: 1", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		begun <- struct{}{}
		<-gate
		emit(r, "", string(m.Data))
		return nil
	}})
	for i := range 10 {
		r.pub("orders.a", fmt.Sprint(i))
	}
	<-begun
	r.eventually(func() error {
		if n := r.m.Status()[0].InFlight; n != 10 {
			return fmt.Errorf("%d in flight", n)
		}
		return nil
	})
	drained := make(chan error, 1)
	go func() { drained <- r.m.Drain(t.Context()) }()
	r.eventually(func() error {
		p := r.m.pipelines["orders"].(*pipeline)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.draining {
			return fmt.Errorf("not draining")
		}
		return nil
	})
	close(gate)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if n := len(begun); n != 0 {
		t.Errorf("%d more handlers began while draining", n)
	}
	if n := r.count("MQRUN_ORDERS", "done.orders"); n != 1 {
		t.Errorf("%d outputs; want that of the handler that ran", n)
	}
	// What was given back comes at once, long before ack_wait.
	c, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(9, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range got.Messages() {
		n++
	}
	if n != 9 {
		t.Errorf("%d of 9 came back: %v", n, got.Error())
	}
}

func TestReconnectLosesNothing(t *testing.T) {
	r := each(t, func(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)); return nil })
	const n = 300
	for i := range n {
		if i%100 == 50 {
			for _, nc := range []*nats.Conn{r.m.broker.in, r.m.broker.out} {
				if err := nc.ForceReconnect(); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.pub("orders.a", fmt.Sprint(i))
	}
	r.read("MQRUN_ORDERS", "done.orders", n)
	r.settled("MQRUN", "orders")
	if got := r.count("MQRUN_ORDERS", "done.orders"); got != n {
		t.Errorf("%d outputs; want %d", got, n)
	}
}

func TestRedeliveryOfWhatIsAtWorkDoesNotRunTwice(t *testing.T) {
	var calls atomic.Int64
	begun, gate := make(chan struct{}), make(chan struct{})
	r := each(t, func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		begun <- struct{}{}
		<-gate
		emit(r, "", "ok")
		return nil
	})
	r.pub("orders.a", "x")
	<-begun
	// As after a pause of the whole process: the server gives the message out
	// again while its handler runs.
	s := r.m.pipelines["orders"].(*pipeline).slots.busy(nil)
	for _, s := range s {
		s.mu.Lock()
		if s.state == running {
			if _, err := r.mq.NatsConn().Request(s.reply, []byte("-NAK"), flushWait); err != nil {
				t.Error(err)
			}
		}
		s.mu.Unlock()
	}
	r.eventually(func() error {
		c, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
		if err != nil {
			return err
		}
		if d := c.CachedInfo().Delivered.Consumer; d != 2 {
			return fmt.Errorf("%d deliveries", d)
		}
		return nil
	})
	close(gate)
	r.read("MQRUN_ORDERS", "done.orders", 1)
	r.idle("orders")
	r.settled("MQRUN", "orders")
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}
