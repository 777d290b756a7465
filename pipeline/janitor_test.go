package pipeline

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mqrun/mqrun/host"
)

func TestJanitorPurgesOnlyWhatIsReadAndOld(t *testing.T) {
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	r := newRig(t, `
plugins: { a: { module: a.wasm }, b: { module: b.wasm } }
pipelines:
  first: { from: orders.x, steps: [a], to: out.a }
  slow: { from: orders.x, steps: [b], to: out.b, max_in_flight: 16, workers: 1 }
`, map[string]native{
		"a": func(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)); return nil },
		"b": func(*host.Message, *host.Result) error { <-gate; return nil },
	})
	const n, size = 200, 10_000
	for range n {
		r.pub("orders.x", strings.Repeat("x", size))
	}
	r.read("MQRUN_FIRST", "out.a", n)
	r.settled("MQRUN", "first")
	for _, name := range []string{"MQRUN", "MQRUN_FIRST"} { // make both of them full
		s, err := r.js().Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = int64(s.CachedInfo().State.Bytes) + 1000
		if _, err := r.js().UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(in time.Duration) {
		t.Helper()
		if err := r.m.sweep(t.Context(), time.Now().Add(in)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(0)
	if in, out := r.count("MQRUN", "orders.x"), r.count("MQRUN_FIRST", "out.a"); in != n || out != n {
		t.Fatalf("%d inputs, %d outputs: fresh messages are gone", in, out)
	}
	sweep(2 * time.Hour)
	if in := r.count("MQRUN", "orders.x"); in != n {
		t.Fatalf("%d of %d inputs: purged what the slow pipeline has not handled", in, n)
	}
	if out := r.count("MQRUN_FIRST", "out.a"); out == n || out < n/2 {
		t.Errorf("%d of %d results: want the oldest gone, down to 70 %%", out, n)
	}
	r.pub("mqrun.MQRUN.redo.nobody", "kept")
	open()
	r.settled("MQRUN", "slow")
	sweep(2 * time.Hour)
	if in := r.count("MQRUN", "orders.x"); in != 0 {
		t.Errorf("%d inputs left; all were read", in)
	}
	if k := r.count("MQRUN", "mqrun.MQRUN.redo.nobody"); k != 1 {
		t.Error("a message under mqrun.> was purged")
	}
}

func TestJanitorForgetsOldResultsAndNoDeadLetter(t *testing.T) {
	r := each(t, func(m *host.Message, r *host.Result) error {
		if string(m.Data) == "bad" {
			r.Code = host.Reject
			return nil
		}
		emit(r, "", string(m.Data))
		return nil
	})
	r.pub("orders.a", "good")
	r.pub("orders.a", "bad")
	r.settled("MQRUN", "orders")
	for _, tt := range []struct {
		in      time.Duration
		results int
	}{{160 * time.Hour, 1}, {169 * time.Hour, 0}} {
		if err := r.m.sweep(t.Context(), time.Now().Add(tt.in)); err != nil {
			t.Fatal(err)
		}
		if got, dead := r.count("MQRUN_ORDERS", "done.orders"), r.count("MQRUN_DLQ", "dlq.>"); got != tt.results || dead != 1 {
			t.Errorf("after %v: %d results, %d dead letters; want %d, 1", tt.in, got, dead, tt.results)
		}
	}
}

func TestFullDeadLetterStreamBlocks(t *testing.T) {
	// It is blocked for longer than a second.
	r := newRig(t, strings.Replace(one, "ack_wait: 1s, ", "", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		r.Code = host.Reject
		return nil
	}})
	s, err := r.js().Stream(t.Context(), "MQRUN_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs = 1
	if _, err := r.js().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.pub("orders.a", fmt.Sprint(i))
	}
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.State != StateBlocked || !strings.Contains(st.Why, "dlq.orders") || st.Dead != 1 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	cfg.MaxMsgs = -1
	if _, err := r.js().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.read("MQRUN_DLQ", "dlq.orders", 3)
	r.idle("orders")
	if st := r.m.Status()[0]; st.State != StateRunning || st.Handled != 3 {
		t.Errorf("%+v", st)
	}
}
