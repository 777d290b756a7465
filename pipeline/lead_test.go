package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

// newServer is a server that other processes can reach.
func newServer(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, sync: time.Minute, dir: t.TempDir(), listen: "127.0.0.1:0", log: &syncWriter{}}
	r.start()
	t.Cleanup(r.stop)
	return r
}

// join is another process, with connections of its own to the server.
func (r *rig) join(yaml string, plugins map[string]native) *rig {
	r.t.Helper()
	o := &rig{t: r.t, sync: time.Minute, dir: r.t.TempDir(), url: r.mq.GetServer().ClientURL(), native: plugins, log: &syncWriter{}}
	if err := os.Mkdir(filepath.Join(o.dir, "store"), 0o700); err != nil {
		r.t.Fatal(err)
	}
	o.start()
	r.t.Cleanup(o.stop)
	o.apply(yaml)
	return o
}

// kill cuts a process off for good: nothing of it reaches the server any more,
// and nothing is given back.
func (r *rig) kill() {
	r.killed = true
	r.mq.NatsConn().Close()
	r.m.broker.in.Close()
	r.m.broker.out.Close()
}

func TestOrderedPipelineRunsInOneProcess(t *testing.T) {
	srv := newServer(t)
	yaml := ordered("subject", "")
	var first, second atomic.Int64
	counted := func(n *atomic.Int64) map[string]native {
		return map[string]native{"a": func(m *host.Message, r *host.Result) error { n.Add(1); return echo(m, r) }}
	}
	a := srv.join(yaml, counted(&first))
	a.state("orders", StateRunning, "")
	b := srv.join(yaml, counted(&second))
	if st := b.state("orders", StateStandby, a.m.broker.owner); !st.Ready() {
		t.Errorf("%+v is not ready", st)
	}
	for i := 1; i <= 100; i++ {
		srv.pub("orders.a", fmt.Sprint("a", i))
	}
	srv.read("MQRUN_ORDERS", "done.orders", 100)
	if second.Load() != 0 {
		t.Errorf("the process that stands by handled %d messages", second.Load())
	}
	a.stopManager() // gives the lease up at once
	for i := 101; i <= 200; i++ {
		srv.pub("orders.a", fmt.Sprint("a", i))
	}
	if got := srv.outputs(200); !slices.Equal(got, numbers("a", 1, 200)) {
		t.Errorf("outputs %v", got)
	}
	srv.settled("MQRUN", "orders")
	if first.Load() != 100 || second.Load() != 100 {
		t.Errorf("handled %d and %d; want 100 each", first.Load(), second.Load())
	}
}

// ORD-02, second half: a process is killed with messages unacked, the next one
// begins with them.
func TestORD02_KilledWithUnackedMessages(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	yaml := ordered("subject", ", max_in_flight: 32")
	stuck, gate := make(chan struct{}), make(chan struct{})
	defer close(gate)
	a := srv.join(yaml, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if m.Sequence > 10 {
			select {
			case stuck <- struct{}{}:
			case <-gate:
			}
			<-gate
		}
		return echo(m, r)
	}})
	a.state("orders", StateRunning, "")
	b := srv.join(yaml, map[string]native{"a": echo})
	const n = 200
	want := map[string][]string{}
	for i := range n {
		k := string(rune('a' + i%5))
		s := fmt.Sprint(k, i)
		want[k] = append(want[k], s)
		srv.pub("orders."+k, s)
	}
	for range 4 {
		<-stuck
	}
	a.kill()
	got := map[string][]string{}
	for _, s := range srv.outputs(n) {
		got[s[:1]] = append(got[s[:1]], s)
	}
	srv.settled("MQRUN", "orders")
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("outputs %v", got)
	}
	if c := srv.count("MQRUN_ORDERS", "done.orders"); c != n {
		t.Errorf("%d outputs; want %d", c, n)
	}
	if !strings.Contains(b.log.String(), "waiting for what was given out before") {
		t.Error("nothing was unacked: the test shows nothing")
	}
}

// A process that cannot keep its lease gives everything back, and takes over
// again later.
func TestLostLeaseGivesBack(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	yaml := ordered("strict", "")
	begun, gate := make(chan struct{}, 100), make(chan struct{})
	a := srv.join(yaml, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		begun <- struct{}{}
		<-gate
		return echo(m, r)
	}})
	for _, s := range numbers("", 1, 20) {
		srv.pub("orders.a", s)
	}
	<-begun
	// Somebody takes the lease, as after a pause of the whole process.
	kv, err := srv.js().KeyValue(t.Context(), BucketLeases)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "orders", []byte(`{"owner":"somebody"}`)); err != nil {
		t.Fatal(err)
	}
	a.state("orders", StateStandby, "")
	a.eventually(func() error {
		if n := a.m.Status()[0].InFlight; n != 1 {
			return fmt.Errorf("%d in flight; want the one that was begun", n)
		}
		return nil
	})
	if len(begun) != 0 {
		t.Error("another message was begun without the lease")
	}
	close(gate)
	if got := srv.outputs(20); !slices.Equal(got, numbers("", 1, 20)) {
		t.Errorf("outputs %v", got)
	}
	srv.settled("MQRUN", "orders")
}

// A lease that was taken while the process stopped already would be in the way
// of the next one.
func TestStopLeavesNoLease(t *testing.T) {
	yaml := ordered("strict", "")
	r := newRig(t, yaml, map[string]native{"a": echo})
	kv, err := r.js().KeyValue(t.Context(), BucketLeases)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r.stopManager()
		if e, err := kv.Get(t.Context(), "orders"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Fatalf("stop %d: %v %v", i, e, err)
		}
		r.restartManager(yaml)
	}
}

func TestLease(t *testing.T) {
	e, err := mq.Open(t.Context(), mq.Options{StoreDir: t.TempDir(), MaxBytes: 1 << 30, SyncInterval: time.Minute, Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	open := func(ctx context.Context) (jetstream.KeyValue, error) { return openLeases(ctx, e.JetStream(), 1<<20, 1) }
	kv, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, b := &lease{open: open, kv: kv, key: "x", owner: "a"}, &lease{open: open, kv: kv, key: "x", owner: "b"}
	take := func(l *lease, want bool, holder string) {
		t.Helper()
		ok, who, err := l.acquire(t.Context())
		if err != nil || ok != want || who != holder || l.held(time.Now()) != want {
			t.Fatalf("%s: %v %q %v", l.owner, ok, who, err)
		}
	}
	take(a, true, "")
	take(b, false, "a")
	take(a, true, "") // again, after an answer that was lost
	for range 3 {
		if err := a.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.rev-- // the answer to the last one was lost
	if err := a.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.held(time.Now().Add(leaseTTL)) {
		t.Error("sure of a lease that has expired")
	}
	if err := a.release(t.Context()); err != nil || a.held(time.Now()) {
		t.Fatal(err)
	}
	take(b, true, "")
	take(a, false, "b")
	if err := a.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	take(a, false, "b")                                                         // it gave up nothing of b's
	take(&lease{open: open, kv: kv, key: "x", owner: "c", gone: "b"}, true, "") // the process that was b is gone
	take(a, false, "c")
	if err := b.kv.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	take(a, true, "")
	if err := b.renew(t.Context()); err == nil || b.held(time.Now()) {
		t.Errorf("b keeps a's lease: %v", err)
	}
	// An operator removes the bucket.
	if err := e.JetStream().DeleteKeyValue(t.Context(), BucketLeases); err != nil {
		t.Fatal(err)
	}
	if err := a.renew(t.Context()); err == nil {
		t.Error("a lease was kept in a bucket that is gone")
	}
	take(b, true, "")
}
