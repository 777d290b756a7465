package pipeline

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
)

const partedYAML = `
plugins: { a: { module: a.wasm } }
pipelines:
  orders: { from: "orders.>", steps: a, to: done.orders, order: subject, partitions: 4, workers: 2, ack_wait: 1s, retry: { attempts: 3, initial: 50ms, factor: 1, max: 50ms, jitter: 0 } }
`

// runs are the parts that a process has, as its status says.
func (r *rig) runs() int {
	n := 0
	for _, p := range r.m.engine("orders").(*parted).parts {
		p.mu.Lock()
		if p.active {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

func (r *rig) hasParts(want int) {
	r.t.Helper()
	r.eventually(func() error {
		if n := r.runs(); n != want {
			return fmt.Errorf("%d parts; want %d: %+v", n, want, r.m.Status()[0])
		}
		return nil
	})
}

// feeder publishes numbered messages of many subjects until it is told to stop.
type feeder struct {
	t    *testing.T
	stop chan struct{}
	done sync.WaitGroup
	n    atomic.Int64
	keys int
	next []int
}

func feed(t *testing.T, r *rig, keys int) *feeder {
	f := &feeder{t: t, stop: make(chan struct{}), keys: keys, next: make([]int, keys)}
	f.done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-f.stop:
				return
			case <-time.After(500 * time.Microsecond):
			}
			k := i % keys
			for {
				data := fmt.Sprintf("%d:%d", k, f.next[k])
				if _, err := r.js().Publish(t.Context(), fmt.Sprintf("orders.k.%d", k), []byte(data), jetstream.WithMsgID(data)); err == nil {
					break
				} else if t.Context().Err() != nil {
					return
				}
			}
			f.next[k]++
			f.n.Add(1)
		}
	})
	return f
}

// more waits for so many further messages.
func (f *feeder) more(n int64) {
	f.t.Helper()
	want := f.n.Load() + n
	for end := time.Now().Add(time.Minute); f.n.Load() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatal("nothing is published any more")
		}
	}
}

// check ends the feeding and compares: each message once, each subject in order.
func (f *feeder) check(r *rig) {
	f.t.Helper()
	close(f.stop)
	f.done.Wait()
	n := int(f.n.Load())
	r.eventuallyLong(func() error {
		if have := r.count("MQRUN_ORDERS", "done.orders"); have < n {
			return fmt.Errorf("%d of %d outputs", have, n)
		}
		return nil
	})
	got := make([]int, f.keys)
	lost, duplicates, disorder := 0, 0, 0
	seen := map[string]bool{}
	all := r.read("MQRUN_ORDERS", "done.orders", r.count("MQRUN_ORDERS", "done.orders"))
	for _, m := range all {
		if seen[string(m.Data())] {
			duplicates++
			continue
		}
		seen[string(m.Data())] = true
		key, number, _ := strings.Cut(string(m.Data()), ":")
		k, _ := strconv.Atoi(key)
		i, _ := strconv.Atoi(number)
		if i != got[k] {
			disorder++
		}
		got[k] = i + 1
	}
	for k, next := range f.next {
		for i := range next {
			if !seen[fmt.Sprintf("%d:%d", k, i)] {
				lost++
			}
		}
	}
	f.t.Logf("RESULT confirmed=%d outputs=%d duplicates=%d lost=%d disorder=%d", n, len(all), duplicates, lost, disorder)
	if lost+duplicates+disorder > 0 {
		f.t.Error("lost, duplicates and disorder must be 0")
	}
}

func (r *rig) eventuallyLong(f func() error) {
	r.t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(begin) > 90*time.Second {
			r.t.Fatal(err)
		}
	}
}

// Parts are shared out, given to who joins, and taken over from who stops or is
// killed, while messages flow.
func TestPartsAreSharedOut(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	shareOut(t, srv, func(plugins map[string]native) *rig { return srv.join(partedYAML, plugins) })
}

func TestPartsAreSharedOutOnACluster(t *testing.T) {
	t.Parallel()
	c := remoteServers(t, 3, nil)
	srv := remoteRig(t, c.URL(), 3, map[string]native{"a": echo})
	shareOut(t, srv, func(plugins map[string]native) *rig {
		r := remoteRig(t, c.URL(), 3, plugins)
		r.apply(partedYAML)
		return r
	})
}

func shareOut(t *testing.T, srv *rig, join func(map[string]native) *rig) {
	var handled [3]atomic.Int64
	process := func(i int) *rig {
		return join(map[string]native{"a": func(m *host.Message, r *host.Result) error {
			handled[i].Add(1)
			if !strings.HasPrefix(m.Subject, "orders.k.") {
				t.Errorf("the guest sees subject %q", m.Subject)
			}
			return echo(m, r)
		}})
	}
	a := process(0)
	a.hasParts(4)
	f := feed(t, srv, 20)
	f.more(200)
	b := process(1)
	a.hasParts(2)
	b.hasParts(2)
	f.more(200)
	c := process(2)
	a.eventually(func() error {
		if x, y, z := a.runs(), b.runs(), c.runs(); x+y+z != 4 || x == 0 || y == 0 || z == 0 {
			return fmt.Errorf("parts %d, %d, %d", x, y, z)
		}
		return nil
	})
	f.more(200)
	b.kill()
	began := time.Now()
	a.hasParts(2)
	c.hasParts(2)
	t.Logf("taken over after %v", time.Since(began).Round(100*time.Millisecond))
	f.more(200)
	c.stopManager()
	began = time.Now()
	a.hasParts(4)
	t.Logf("given back after %v", time.Since(began).Round(100*time.Millisecond))
	f.more(200)
	f.check(srv)
	for i := range handled {
		if handled[i].Load() == 0 {
			t.Errorf("process %d handled nothing", i)
		}
	}
}

// What a stream holds when it is split comes first; ids and what others see do
// not depend on the parts.
func TestSplitOfAStreamInUse(t *testing.T) {
	t.Parallel()
	whole := strings.Replace(partedYAML, "partitions: 4, ", "", 1)
	both := func(yaml string) string {
		return yaml + `  watch: { from: "orders.>", steps: a, to: done.watch }` + "\n"
	}
	var gate atomic.Bool
	gate.Store(true)
	var early atomic.Int64
	r := newRig(t, both(whole), map[string]native{"a": func(m *host.Message, res *host.Result) error {
		if m.Pipeline == "orders" {
			if strings.HasPrefix(string(m.Data), "new") && gate.Load() {
				early.Add(1)
			}
			if string(m.Data) == "old0" && gate.Load() {
				res.Code, res.RetryAfter, res.RetrySet = host.Retry, 20*time.Millisecond, true
				return nil
			}
			if string(m.Data) == "bad" {
				res.Code = host.Reject
				return nil
			}
		}
		return echo(m, res)
	}})
	yaml := strings.Replace(partedYAML, "attempts: 3", "attempts: 1000", 1)
	r.apply(both(strings.Replace(whole, "attempts: 3", "attempts: 1000", 1)))
	for i := range 10 {
		r.pub(fmt.Sprint("orders.k.", i), fmt.Sprint("old", i))
	}
	r.read("MQRUN_ORDERS", "done.orders", 9) // all but the one that is held
	r.apply(both(yaml))
	for i := range 10 {
		r.pub(fmt.Sprint("orders.k.", i), fmt.Sprint("new", i))
	}
	bad := r.pub("orders.k.3", "bad")
	gate.Store(false)
	r.read("MQRUN_ORDERS", "done.orders", 20)
	if n := early.Load(); n > 0 {
		t.Errorf("%d messages began before what was there before the split", n)
	}
	dead := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
	st, err := r.js().Stream(t.Context(), "MQRUN")
	if err != nil {
		t.Fatal(err)
	}
	id := newIdentity("orders", "MQRUN", st.CachedInfo().Created)
	if got, want := dead.Headers().Get("Nats-Msg-Id"), id.id(bad.Sequence, "dlq"); got != want {
		t.Errorf("id %q; want %q", got, want)
	}
	if got := dead.Headers().Get("Mqrun-Subject"); got != "orders.k.3" {
		t.Errorf("the dead letter is of subject %q", got)
	}
	for _, m := range r.read("MQRUN_ORDERS", "done.orders", 20)[10:] {
		if id := m.Headers().Get("Nats-Msg-Id"); !strings.HasPrefix(id, "orders:MQRUN:") || strings.Contains(id, "part") {
			t.Errorf("output id %q", id)
		}
	}
	// The other reader got all.
	r.read("MQRUN_WATCH", "done.watch", 21)
	// There is no way back: each part has its own position.
	_, err = r.m.Apply(r.ctx(), r.load(both(whole)))
	if err == nil || !strings.Contains(err.Error(), "had partitions") {
		t.Errorf("partitions taken away: %v", err)
	}
	_, err = r.m.Apply(r.ctx(), r.load(both(strings.Replace(yaml, "partitions: 4", "partitions: 5", 1))))
	if err == nil || !strings.Contains(err.Error(), "split into 4 parts") {
		t.Errorf("another number of partitions: %v", err)
	}
}

// Who has lost the lease publishes nothing, however long it stood still: what
// was in work is handled by the next.
func TestFencedProcessPublishesNothing(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	inside, gate := make(chan struct{}, 100), make(chan struct{})
	var twice atomic.Int64
	a := srv.join(partedYAML, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		inside <- struct{}{}
		<-gate
		emit(r, "", "late")
		return nil
	}})
	a.hasParts(4)
	srv.pub("orders.k.1", "one")
	<-inside
	// As after a long pause: the leases belong to somebody else.
	kv, err := srv.js().KeyValue(t.Context(), BucketLeases)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if _, err := kv.Put(t.Context(), partKey("orders", 4, n), []byte(`{"owner":"somebody"}`)); err != nil {
			t.Fatal(err)
		}
	}
	a.hasParts(0)
	close(gate)
	a.eventually(func() error {
		if n := a.m.Status()[0].InFlight; n != 0 {
			return fmt.Errorf("%d in flight", n)
		}
		return nil
	})
	if n := srv.count("MQRUN_ORDERS", "done.orders"); n != 0 {
		t.Errorf("%d outputs of a process without the lease", n)
	}
	a.stopManager()
	srv.join(partedYAML, map[string]native{"a": func(m *host.Message, r *host.Result) error { twice.Add(1); return echo(m, r) }})
	if got := srv.outputs(1); got[0] != "one" || twice.Load() != 1 {
		t.Errorf("outputs %q after %d calls", got, twice.Load())
	}
}
