package pipeline

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
)

var batched = strings.Replace(one, "ack_wait: 1s", "ack_wait: 1s, commit: batch", 1)

func echo(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)); return nil }

// feed publishes the numbers from..to-1.
func (r *rig) feed(from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		if _, err := r.js().PublishAsync("orders.a", strconv.AppendInt(nil, int64(i), 10)); err != nil {
			r.t.Fatal(err)
		}
		if i%500 == 499 || i == to-1 {
			select {
			case <-r.js().PublishAsyncComplete():
			case <-time.After(flushWait):
				r.t.Fatal("inputs were not confirmed")
			}
		}
	}
}

// exactly fails unless done.orders holds the numbers 0..n-1, each once, and
// in order when ordered.
func (r *rig) exactly(n int, ordered bool) {
	r.t.Helper()
	r.read("MQRUN_ORDERS", "done.orders", n)
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.InFlight > 0 || st.Parked > 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if got := r.count("MQRUN_ORDERS", "done.orders"); got != n {
		r.t.Errorf("%d outputs; want %d", got, n)
	}
	seen := make([]bool, n)
	for i, m := range r.read("MQRUN_ORDERS", "done.orders", n) {
		k, err := strconv.Atoi(string(m.Data()))
		if err != nil || k >= n || seen[k] || ordered && k != i {
			r.t.Fatalf("output %d is %q: repeated, unknown or out of order", i, m.Data())
		}
		seen[k] = true
	}
}

func TestBatchCommitsInOrder(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": echo})
	const n = 3000
	r.feed(0, n)
	r.exactly(n, true)
	c, err := readCheckpoint(t.Context(), r.js(), "MQRUN_ORDERS", "mqrun.MQRUN_ORDERS.ckpt.orders.0")
	if err != nil || c.Sequence != n || c.Stream != "MQRUN" {
		t.Errorf("checkpoint %+v, %v; want sequence %d", c, err, n)
	}
	if k := r.count("MQRUN_ORDERS", "mqrun.>"); k != 1 {
		t.Errorf("%d internal messages; want the checkpoint alone", k)
	}
}

func TestBatchSingleMessageDoesNotWait(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": echo})
	for i := range 5 {
		r.feed(i, i+1)
		r.read("MQRUN_ORDERS", "done.orders", i+1)
	}
	r.exactly(5, true)
}

func TestBatchRetriesDoNotHoldTheLine(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, batched, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if n, _ := strconv.Atoi(string(m.Data)); n%10 == 0 && m.Attempt < 3 {
			calls.Add(1)
			r.Code, r.RetrySet, r.RetryAfter = host.Retry, true, 200*time.Millisecond
			return nil
		}
		return echo(m, r)
	}})
	const n = 1000
	r.feed(0, n)
	r.exactly(n, false)
	if got := calls.Load(); got != n/10*2 {
		t.Errorf("%d failed attempts; want %d", got, n/10*2)
	}
	r.eventually(func() error { // done marks expire
		if k := r.count("MQRUN_ORDERS", "mqrun.>"); k != 1 {
			return fmt.Errorf("%d internal messages", k)
		}
		return nil
	})
}

func TestBatchDeadLetters(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		switch n, _ := strconv.Atoi(string(m.Data)); {
		case n >= 100:
			r.Code, r.Reason = host.Reject, "too large"
		case n >= 90:
			r.Code = host.Retry
		default:
			return echo(m, r)
		}
		return nil
	}})
	r.feed(0, 120)
	dead := r.read("MQRUN_DLQ", "dlq.orders", 30)
	r.exactly(90, true)
	reasons := map[string]int{}
	for _, m := range dead {
		reasons[m.Headers().Get("Mqrun-Reason")+" "+m.Headers().Get("Mqrun-Attempts")+" "+m.Headers().Get("Mqrun-Subject")]++
	}
	if reasons["rejected 1 orders.a"] != 20 || reasons["retry 3 orders.a"] != 10 {
		t.Errorf("dead letters %v", reasons)
	}
}

func TestBatchSurvivesCrashes(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if n, _ := strconv.Atoi(string(m.Data)); n%97 == 0 && m.Attempt == 1 {
			r.Code, r.RetrySet, r.RetryAfter = host.Retry, true, 50*time.Millisecond
			return nil
		}
		return echo(m, r)
	}})
	const rounds, each = 10, 400
	for i := range rounds {
		r.feed(i*each, (i+1)*each)
		if i == rounds-1 {
			break
		}
		// As a kill does it: nothing is drained, groups are cut off where they are.
		r.m.mu.Lock()
		killed := r.m.pipelines["orders"]
		r.m.pipelines = map[string]engine{}
		r.m.mu.Unlock()
		killed.close()
		r.stopManager()
		r.restartManager(batched)
	}
	r.exactly(rounds*each, false)
}

func TestBatchDrainIsNoRepetition(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, batched, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		return echo(m, r)
	}})
	r.feed(0, 500)
	r.exactly(500, true)
	r.stopManager()
	r.restartManager(batched)
	r.feed(500, 600)
	r.exactly(600, true)
	if n := calls.Load(); n != 600 {
		t.Errorf("%d handler calls; want 600", n)
	}
}

func TestBatchGoesOnAfterReconnects(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": echo})
	const n = 2000
	for i := range 10 {
		r.feed(i*n/10, (i+1)*n/10)
		for _, nc := range []*nats.Conn{r.m.broker.in, r.m.broker.out} {
			if err := nc.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.exactly(n, true)
}

func TestBatchBlocksOnAFullStream(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": echo})
	s, err := r.js().Stream(t.Context(), "MQRUN_ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgs = 50
	if _, err := r.js().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.feed(0, 200)
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.State != StateBlocked || st.Refused == 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	cfg.MaxMsgs = -1
	if _, err := r.js().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r.exactly(200, true)
	if st := r.m.Status()[0]; st.State != StateRunning {
		t.Errorf("%+v", st)
	}
}

func TestBatchNeverStartsAnewByItself(t *testing.T) {
	r := newRig(t, batched, map[string]native{"a": echo})
	r.feed(0, 10)
	r.exactly(10, true)
	r.stopManager()
	st, err := r.js().Stream(t.Context(), "MQRUN_ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context(), jetstream.WithPurgeSubject("mqrun.>")); err != nil {
		t.Fatal(err)
	}
	if r.m, err = Open(t.Context(), r.m.o); err != nil {
		t.Fatal(err)
	}
	r.goNative()
	cfg := r.load(batched)
	_, err = r.m.Apply(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "checkpoint") || !strings.Contains(err.Error(), "set-position orders") {
		t.Errorf("%v; want the missing checkpoint and the cure", err)
	}
	if _, _, err := SetPosition(t.Context(), r.js(), cfg, "orders", 11); err == nil || !strings.Contains(err.Error(), "ends at 10") {
		t.Errorf("%v; want the end of the stream", err)
	}
	stream, was, err := SetPosition(t.Context(), r.js(), cfg, "orders", 10)
	if err != nil || stream != "MQRUN" || was != 0 {
		t.Fatalf("%s %d %v", stream, was, err)
	}
	r.apply(batched)
	r.feed(10, 20)
	r.exactly(20, true)
}

// A change of commit, there and back and there again, repeats and skips nothing.
func TestCommitChangesWhereItWas(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, one, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		return echo(m, r)
	}})
	for i, yaml := range []string{one, batched, one, batched, one} {
		if i > 0 {
			r.apply(yaml)
		}
		r.feed(100*i, 100*(i+1))
		r.settled("MQRUN", "orders")
		_, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
		c := r.checkpoint("orders")
		if each := yaml == one; (err == nil) != each || (c.fence == 0) != each {
			t.Errorf("change %d: consumer %v, checkpoint %+v: what is left holds the janitor", i, err, c)
		}
	}
	r.exactly(500, false)
	if n := calls.Load(); n != 500 {
		t.Errorf("%d handler calls; want 500", n)
	}
}

// What waits for its next attempt would be forgotten.
func TestCommitEachWaitsForParkedMessages(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	r := newRig(t, batched, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		if broken.Load() {
			r.Code, r.RetrySet, r.RetryAfter = host.Retry, true, time.Hour
			return nil
		}
		return echo(m, r)
	}})
	r.feed(0, 3)
	r.eventually(func() error {
		if n := r.m.Status()[0].Parked; n != 3 {
			return fmt.Errorf("%d parked", n)
		}
		return nil
	})
	if _, err := r.m.Apply(t.Context(), r.load(one)); err == nil || !strings.Contains(err.Error(), "3 messages wait for their next attempt") {
		t.Errorf("%v", err)
	}
}

// Nor does one together with a new name.
func TestCommitChangesUnderANewName(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, one, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		return echo(m, r)
	}})
	renamed := func(yaml string) string {
		return strings.Replace(yaml, "  orders: { ", "  shop: { was: orders, ", 1)
	}
	for i, yaml := range []string{one, renamed(batched), renamed(one)} {
		if i > 0 {
			r.apply(yaml)
		}
		r.feed(100*i, 100*(i+1))
		r.read("MQRUN_ORDERS", "done.orders", 100*(i+1))
		r.eventually(func() error {
			if st := r.m.Status()[0]; st.InFlight > 0 {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
	}
	r.settled("MQRUN", "orders") // the durable of the first name
	r.exactly(300, false)
	if n := calls.Load(); n != 300 {
		t.Errorf("%d handler calls; want 300", n)
	}
}
