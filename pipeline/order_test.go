package pipeline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqrun/mqrun/host"
)

// ordered is a pipeline "orders" that keeps an order.
func ordered(order, more string) string {
	return `
plugins: { a: { module: a.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [a], to: done.orders, order: "` + order + `", workers: 4, ack_wait: 1s, retry: { attempts: 3, initial: 50ms, factor: 1, max: 50ms, jitter: 0 }` + more + ` }
`
}

func (r *rig) pipeline(name string) *pipeline { return r.m.engine(name).(*pipeline) }

func (m *Manager) engine(name string) engine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pipelines[name]
}

// state waits until a pipeline is in it.
func (r *rig) state(name, state, why string) Status {
	r.t.Helper()
	var st Status
	r.eventually(func() error {
		for _, st = range r.m.Status() {
			if st.Name == name && st.State == state && strings.Contains(st.Why, why) {
				return nil
			}
		}
		return fmt.Errorf("%+v; want %s with %q", st, state, why)
	})
	return st
}

func (r *rig) outputs(n int) []string {
	r.t.Helper()
	var got []string
	for _, m := range r.read("MQRUN_ORDERS", "done.orders", n) {
		got = append(got, string(m.Data()))
	}
	return got
}

func numbers(prefix string, from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

func TestORD01_HowManyRunAtOnce(t *testing.T) {
	const n = 100
	for order, most := range map[string]int64{"none": 4, "strict": 1, "subject": 4} {
		t.Run(order, func(t *testing.T) {
			var now, top atomic.Int64
			var mu sync.Mutex
			keys := map[string]bool{}
			together := false
			four := make(chan struct{})
			r := newRig(t, ordered(order, ""), map[string]native{"a": func(m *host.Message, r *host.Result) error {
				in := now.Add(1)
				defer now.Add(-1)
				for old := top.Load(); in > old && !top.CompareAndSwap(old, in); old = top.Load() {
				}
				mu.Lock()
				together = together || keys[m.Subject]
				keys[m.Subject] = true
				mu.Unlock()
				if in == 4 {
					select {
					case <-four:
					default:
						close(four)
					}
				}
				if most == 4 { // the first ones wait until four are in work
					<-four
				}
				time.Sleep(time.Duration(m.Sequence*7919%5) * time.Millisecond) // the handler's work
				mu.Lock()
				delete(keys, m.Subject)
				mu.Unlock()
				emit(r, "", string(m.Data))
				return nil
			}})
			for i := 1; i <= n; i++ {
				r.pub("orders.k"+strconv.Itoa(i%5), strconv.Itoa(i))
			}
			got := r.outputs(n)
			r.settled("MQRUN", "orders")
			if top.Load() != most {
				t.Errorf("%d handlers at once; want %d", top.Load(), most)
			}
			if order != "none" && together {
				t.Error("two messages of one subject were in work at once")
			}
			switch order {
			case "strict":
				if want := numbers("", 1, n); !slices.Equal(got, want) {
					t.Errorf("outputs %v", got)
				}
			case "subject":
				for k := range 5 {
					var of []int
					for _, s := range got {
						if i, _ := strconv.Atoi(s); i%5 == k {
							of = append(of, i)
						}
					}
					if len(of) != n/5 || !slices.IsSorted(of) {
						t.Errorf("outputs of key %d: %v", k, of)
					}
				}
			}
		})
	}
}

func TestORD02_RetriedMessageKeepsItsPlace(t *testing.T) {
	for order, header := range map[string]string{"strict": "", "subject": "", "header:Customer": "customer"} {
		t.Run(order, func(t *testing.T) {
			free := make(chan struct{})
			var calls sync.Map
			r := newRig(t, ordered(order, ""), map[string]native{"a": func(m *host.Message, r *host.Result) error {
				c, _ := calls.LoadOrStore(string(m.Data), new(atomic.Int64))
				if n := c.(*atomic.Int64).Add(1); n != int64(m.Attempt) {
					return fmt.Errorf("attempt %d in call %d", m.Attempt, n)
				}
				switch data := string(m.Data); {
				case data == "a3" && m.Attempt < 3:
					if order != "strict" {
						<-free // the other key goes on meanwhile
					}
					r.Code = host.Retry
				case data == "a5":
					r.Code, r.RetryAfter, r.RetrySet = host.Retry, time.Millisecond, true
				case data == "a6":
					r.Code = host.Drop
				case data == "a8":
					r.Code = host.Reject
				default:
					emit(r, "", data+".0")
					emit(r, "", data+".1")
				}
				return nil
			}})
			for i := 1; i <= 10; i++ {
				for _, k := range []string{"a", "b"} {
					if header == "" {
						r.pub("orders."+k, k+strconv.Itoa(i))
					} else {
						r.pub("orders.x", k+strconv.Itoa(i), header, k)
					}
				}
			}
			var want []string
			for _, i := range []int{1, 2, 3, 4, 7, 9, 10} {
				want = append(want, fmt.Sprintf("a%d.0", i), fmt.Sprintf("a%d.1", i))
			}
			if order != "strict" {
				r.eventually(func() error {
					if n := r.count("MQRUN_ORDERS", "done.orders"); n != 2*2+10*2 {
						return fmt.Errorf("%d outputs", n)
					}
					return nil
				})
			}
			close(free)
			got := r.outputs(2*7 + 2*10)
			r.settled("MQRUN", "orders")
			var a []string
			for _, s := range got {
				if s[0] == 'a' {
					a = append(a, s)
				}
			}
			if !slices.Equal(a, want) {
				t.Errorf("outputs of key a: %v", a)
			}
			for i, m := range r.read("MQRUN_DLQ", "dlq.orders", 2) {
				if got, want := string(m.Data())+" "+m.Headers().Get("Mqrun-Reason")+" "+m.Headers().Get("Mqrun-Attempts"), []string{"a5 retry 3", "a8 rejected 1"}[i]; got != want {
					t.Errorf("dead letter %q; want %q", got, want)
				}
			}
			r.idle("orders")
			if st := r.m.Status()[0]; st.Retried != 4 || st.Handled != 20+4 || st.Held != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A retry leaves its slot to nobody and its key to nobody, for longer than
// ack_wait; and what waits behind it does not use up the whole window.
func TestHeldKeyIsNamedAndStopsPulling(t *testing.T) {
	t.Parallel()
	r := newRig(t, ordered("subject", ", max_in_flight: 20"), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if string(m.Data) == "a1" && m.Attempt == 1 {
			r.Code, r.RetryAfter, r.RetrySet = host.Retry, 4*time.Second, true
			return nil
		}
		emit(r, "", string(m.Data))
		return nil
	}})
	for i := 1; i <= 40; i++ {
		r.pub("orders.a", fmt.Sprint("a", i))
	}
	r.pub("orders.b", "b1")
	st := r.state("orders", StateWaiting, `key "orders.a"`)
	if st.Held <= 10 || st.Held > 20 || st.Ready() {
		t.Errorf("%+v", st)
	}
	got := r.outputs(41)
	r.settled("MQRUN", "orders")
	got = slices.DeleteFunc(got, func(s string) bool { return s == "b1" })
	if !slices.Equal(got, numbers("a", 1, 40)) {
		t.Errorf("outputs %v", got)
	}
	c, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
	if err != nil {
		t.Fatal(err)
	}
	if d := c.CachedInfo().Delivered.Consumer; d != 41 {
		t.Errorf("%d deliveries of 41 messages: the held ones were not kept alive", d)
	}
}

func TestHeldMessageIsGivenBackWithItsDelay(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var at []time.Time
	failed := make(chan struct{})
	r := newRig(t, ordered("strict", ""), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		switch len(at) {
		case 1:
			r.Code, r.RetryAfter, r.RetrySet = host.Retry, 3*time.Second, true
			close(failed)
			return nil
		case 2:
			if m.Attempt != 2 {
				return fmt.Errorf("attempt %d", m.Attempt)
			}
		}
		emit(r, "", string(m.Data))
		return nil
	}})
	for _, s := range numbers("", 1, 5) {
		r.pub("orders.a", s)
	}
	<-failed
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.Retried != 1 || st.InFlight != 5 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	r.stopManager() // at once: it does not wait for the retry
	r.restartManager(ordered("strict", ""))
	if got := r.outputs(5); !slices.Equal(got, numbers("", 1, 5)) {
		t.Errorf("outputs %v", got)
	}
	r.settled("MQRUN", "orders")
	if gap := at[1].Sub(at[0]); gap < 3*time.Second {
		t.Errorf("tried again after %v; the guest asked for 3s", gap)
	}
}

func TestOrderIsKeptAcrossAStop(t *testing.T) {
	gate := make(chan struct{})
	var calls atomic.Int64
	// With this ack_wait the test fails when what a stop gave back is waited for.
	yaml := strings.Replace(ordered("subject", ", max_in_flight: 64"), "ack_wait: 1s", "ack_wait: 60s", 1)
	r := newRig(t, yaml, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if calls.Add(1) == 20 {
			close(gate)
		}
		time.Sleep(time.Millisecond)
		emit(r, "", string(m.Data))
		return nil
	}})
	const n = 300
	for i := 1; i <= n; i++ {
		r.pub("orders.a", fmt.Sprint("a", i))
	}
	<-gate
	for range 3 {
		r.stopManager()
		if n := calls.Load(); n > 290 {
			t.Fatalf("%d handled already: nothing is left to test with", n)
		}
		r.restartManager(yaml)
	}
	if got := r.outputs(n); !slices.Equal(got, numbers("a", 1, n)) {
		t.Errorf("outputs %v", got)
	}
	r.settled("MQRUN", "orders")
	if c := calls.Load(); c != n {
		t.Errorf("%d calls for %d messages", c, n)
	}
}

// A delivery that was lost with its connection leaves a gap in the consumer's
// count. Nothing behind it may overtake.
func TestLostDeliveryIsWaitedFor(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	r := newRig(t, ordered("subject", ", max_in_flight: 4"), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		<-gate
		emit(r, "", string(m.Data))
		return nil
	}})
	for i := 1; i <= 4; i++ {
		r.pub("orders.a", fmt.Sprint("a", i))
	}
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.InFlight != 4 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	for i := 5; i <= 20; i++ {
		r.pub("orders.a", fmt.Sprint("a", i))
	}
	for range 2 { // two deliveries that nobody sees
		if _, err := r.mq.NatsConn().Request("$JS.API.CONSUMER.MSG.NEXT.MQRUN.mqrun-orders", nil, flushWait); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	r.state("orders", StateRecovering, "2 messages of MQRUN")
	if got := r.outputs(20); !slices.Equal(got, numbers("a", 1, 20)) {
		t.Errorf("outputs %v", got)
	}
	r.settled("MQRUN", "orders")
	r.state("orders", StateRunning, "")
}

func TestFirstHeader(t *testing.T) {
	h := map[string][]string{"customer": {"b", "c"}, "CUSTOMER": {"a"}, "Other": {}}
	for name, want := range map[string]string{"customer": "b", "Customer": "a", "Other": "", "none": ""} {
		for range 20 {
			if got := firstHeader(h, name); got != want {
				t.Errorf("%s: %q; want %q", name, got, want)
			}
		}
	}
}
