package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mqrun/mqrun/host"
)

func TestBatchRunsInOneProcess(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var first, second atomic.Int64
	counted := func(n *atomic.Int64) map[string]native {
		return map[string]native{"a": func(m *host.Message, r *host.Result) error { n.Add(1); return echo(m, r) }}
	}
	a := srv.join(batched, counted(&first))
	a.state("orders", StateRunning, "")
	b := srv.join(batched, counted(&second))
	if st := b.state("orders", StateStandby, a.m.broker.owner); !st.Ready() {
		t.Errorf("%+v is not ready", st)
	}
	srv.feed(0, 300)
	a.settled("MQRUN", "orders")
	a.stopManager() // gives the lease up at once
	srv.feed(300, 500)
	b.settled("MQRUN", "orders")
	b.exactly(500, true)
	if first.Load() != 300 || second.Load() != 200 {
		t.Errorf("handled %d and %d; want 300 and 200", first.Load(), second.Load())
	}
}

// A process is killed with a group on its way and messages in work; the other
// one takes over what is not committed.
func TestBatchTakesOverFromTheDead(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	retry := map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if strings.HasSuffix(string(m.Data), "7") && m.Attempt == 1 {
			r.Code = host.Retry
			return nil
		}
		return echo(m, r)
	}}
	a := srv.join(batched, retry)
	a.state("orders", StateRunning, "")
	b := srv.join(batched, retry)
	b.state("orders", StateStandby, "")
	srv.feed(0, 2000)
	srv.read("MQRUN_ORDERS", "done.orders", 100)
	a.kill()
	srv.feed(2000, 3000)
	b.state("orders", StateRunning, "")
	b.settled("MQRUN", "orders")
	b.exactly(3000, false)
}

// A process that stood still finds its checkpoint moved: it commits nothing, and
// is ready to take over again.
func TestBatchFencedStandsBy(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	gate, stuck := make(chan struct{}), make(chan struct{}, 1000)
	a := srv.join(batched, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		stuck <- struct{}{}
		<-gate
		return echo(m, r)
	}})
	a.state("orders", StateRunning, "")
	b := srv.join(batched, map[string]native{"a": echo})
	srv.feed(0, 100)
	<-stuck
	still := a.m.engine("orders").(*batch)
	still.mu.Lock() // it does not look after its lease
	kv, err := srv.js().KeyValue(t.Context(), BucketLeases)
	if err == nil {
		err = kv.Delete(t.Context(), "orders")
	}
	if err != nil {
		t.Fatal(err)
	}
	b.state("orders", StateRunning, "")
	srv.feed(100, 200)
	b.settled("MQRUN", "orders")
	close(gate)
	zombie := still.tenure
	<-zombie.gone
	if why := zombie.failed(); !strings.Contains(why.Error(), "somebody else has committed up to 200") {
		t.Errorf("%v", why)
	}
	still.mu.Unlock()
	a.state("orders", StateStandby, b.m.broker.owner)
	b.stopManager()
	srv.feed(200, 300)
	a.state("orders", StateRunning, "")
	a.settled("MQRUN", "orders")
	a.exactly(300, true)
}

// Nobody can say that the lease is held, and nobody else has it: work goes on.
func TestBatchGoesOnWithoutItsLease(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": echo})
	r.state("orders", StateRunning, "")
	first := r.m.engine("orders").(*batch).current()
	if err := r.js().DeleteKeyValue(t.Context(), BucketLeases); err != nil {
		t.Fatal(err)
	}
	r.feed(0, 100)
	r.eventually(func() error { // made again
		_, err := r.js().KeyValue(t.Context(), BucketLeases)
		return err
	})
	r.feed(100, 200)
	r.exactly(200, true)
	if r.m.engine("orders").(*batch).current() != first {
		t.Error("the tenure was ended for it")
	}
}

func TestBatchTellsWhatIsPending(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, strings.Replace(batched, "commit: batch", "commit: batch, max_in_flight: 4", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		<-gate
		return echo(m, r)
	}})
	const n = 100
	r.feed(0, n)
	pending := func(want uint64) {
		t.Helper()
		r.eventually(func() error {
			if got, ok := r.m.Pending(t.Context())["orders"]; !ok || got != want {
				return fmt.Errorf("%d pending (%v); want %d", got, ok, want)
			}
			return nil
		})
	}
	pending(n - 16) // four times max_in_flight are taken at once
	close(gate)
	r.exactly(n, true)
	pending(0)
}

// A position that an operator sets is taken by a running pipeline, whether its
// checkpoint held or not.
func TestBatchTakesANewPosition(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": echo})
	r.feed(0, 20)
	r.exactly(20, true)
	if _, _, err := SetPosition(t.Context(), r.js(), r.m.Config(), "orders", 10); err != nil {
		t.Fatal(err)
	}
	r.feed(20, 21) // what is committed now has the wrong fence
	again := r.read("MQRUN_ORDERS", "done.orders", 20+10+1)
	if got := string(again[20].Data()); got != "10" {
		t.Errorf("it went on with %q; want 10", got)
	}
	r.settled("MQRUN", "orders")
	if err := r.js().DeleteStream(t.Context(), "MQRUN"); err != nil {
		t.Fatal(err)
	}
	r.state("orders", StateLost, "set-position orders")
	if _, _, err := SetPosition(t.Context(), r.js(), r.m.Config(), "orders", 0); err != nil {
		t.Fatal(err)
	}
	r.state("orders", StateRunning, "")
	r.feed(100, 110)
	r.settled("MQRUN", "orders")
	if n := r.count("MQRUN_ORDERS", "done.orders"); n != 31+10 {
		t.Errorf("%d outputs; want %d", n, 31+10)
	}
}

// What the host cannot handle is tried again, and leaves nothing of the attempt.
func TestBatchHostErrorIsNoAttempt(t *testing.T) {
	var calls atomic.Int64
	yaml := `
plugins: { a: { module: a.wasm }, b: { module: b.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [a, b], to: done.orders, commit: batch, retry: { attempts: 1 } }
`
	r := newRig(t, yaml, map[string]native{
		"a": func(_ *host.Message, r *host.Result) error { emit(r, "", "0"); emit(r, "", "1"); return nil },
		"b": func(m *host.Message, r *host.Result) error {
			if calls.Add(1) == 2 {
				return fmt.Errorf("no memory for another instance")
			}
			return echo(m, r)
		},
	})
	r.pub("orders.a", "x")
	r.exactly(2, true)
	if n := calls.Load(); n != 4 {
		t.Errorf("%d calls; want 4", n)
	}
}

// A stop waits for a message that is tried again, as for those in the line:
// nothing is handled twice.
func TestBatchStopWaitsForTheNextAttempt(t *testing.T) {
	var again atomic.Int64
	in, gate := make(chan struct{}), make(chan struct{})
	r := newRig(t, batched, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if m.Attempt == 1 {
			r.Code = host.Retry
			return nil
		}
		again.Add(1)
		in <- struct{}{}
		<-gate
		return echo(m, r)
	}})
	r.feed(0, 1)
	<-in
	stopped := make(chan error)
	go func() { stopped <- r.m.Drain(r.ctx()) }()
	r.eventually(func() error {
		tn := r.m.engine("orders").(*batch).current()
		tn.mu.Lock()
		defer tn.mu.Unlock()
		if !tn.releasing {
			return errors.New("not stopping yet")
		}
		return nil
	})
	close(gate)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	r.restartManager(batched)
	r.exactly(1, true)
	if n := again.Load(); n != 1 {
		t.Errorf("%d second attempts; want 1", n)
	}
}

func TestLink(t *testing.T) {
	l := newLink()
	lost := l.lost()
	before, done := l.within(t.Context(), time.Hour)
	defer done()
	l.cut()
	<-lost
	<-before.Done()
	after, done := l.within(t.Context(), time.Hour)
	defer done()
	if after.Err() != nil {
		t.Error("the next connection is cut too")
	}
}
