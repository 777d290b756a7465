package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

// realRig runs real modules; a.wasm is one.
func realRig(t *testing.T) (r *rig, echo []byte) {
	t.Helper()
	echo, err := os.ReadFile(filepath.Join("..", "host", "testdata", "echo.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.New(t.Context(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r = &rig{t: t, sync: time.Minute, dir: t.TempDir(), log: &syncWriter{}}
	r.start()
	r.m.load = sandboxed(rt, nil)
	t.Cleanup(func() {
		r.stop()
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.write("a.wasm", string(echo))
	return r, echo
}

// otherwise is the same module with a custom section: another content.
func otherwise(wasm []byte, n int) string {
	name := fmt.Sprintf("\x04test%04d", n)
	return string(wasm) + "\x00" + string(rune(len(name))) + name
}

const fourYAML = `
plugins: { a: { module: a.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [a], to: done.orders }
  p1: { from: "done.orders", steps: [a], to: p1.out }
  p2: { from: "p1.out", steps: [a, a], to: p2.out }
  p3: { from: "p2.out", steps: [a], to: p3.out }
`

// TestHOT04_SameModuleAgain: a module that is written again as it was changes
// nothing; one that changes and changes back under four pipelines fails nothing.
func TestHOT04_SameModuleAgain(t *testing.T) {
	r, echo := realRig(t)
	r.apply(fourYAML)
	stop := r.flood()
	engine := r.m.pipelines["p2"]
	for i := range 20 {
		r.write("a.wasm", string(echo))
		if p := r.apply(fourYAML); p.Changed() {
			t.Errorf("the same content again: %s", p)
		}
		if i%2 == 0 {
			continue
		}
		for _, wasm := range []string{otherwise(echo, i), string(echo)} {
			r.write("a.wasm", wasm)
			if p := r.apply(fourYAML); len(p.Swap) != 4 {
				t.Errorf("another content: %s", p)
			}
		}
	}
	n := stop()
	r.read("MQRUN_P3", "p3.out", n)
	r.idle("p3")
	if got := r.count("MQRUN_P3", "p3.out"); got != n {
		t.Errorf("%d outputs of %d inputs", got, n)
	}
	if r.m.pipelines["p2"] != engine {
		t.Error("a pipeline was made anew")
	}
	for _, s := range r.m.Status() {
		if s.Retried+s.Dead > 0 || s.Handled != int64(n) {
			t.Errorf("%s: %d handled, %d retried, %d dead of %d", s.Name, s.Handled, s.Retried, s.Dead, n)
		}
	}
}

// TestHOT08_ManyAtOnce: reloads that come at once take turns and end on the
// last one, and a stop in the middle of one ends at once.
func TestHOT08_ManyAtOnce(t *testing.T) {
	r, _ := realRig(t)
	yaml := func(n int) string {
		return fmt.Sprintf("plugins: { a: { module: a.wasm } }\npipelines: { orders: { from: \"orders.>\", steps: [a], to: done.orders, ack_wait: %ds } }\n", 10+n)
	}
	r.apply(yaml(0))
	stop := r.flood()
	var cfgs []*config.Config
	for i := range 10 {
		cfgs = append(cfgs, r.load(yaml(i%3)))
	}
	var wg sync.WaitGroup
	for _, cfg := range cfgs {
		wg.Go(func() {
			if _, err := r.m.Apply(t.Context(), cfg); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r.apply(yaml(7))
	n := stop()
	r.read("MQRUN_ORDERS", "done.orders", n)
	r.idle("orders")
	if got := r.count("MQRUN_ORDERS", "done.orders"); got != n {
		t.Errorf("%d outputs of %d inputs", got, n)
	}
	c, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-orders")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config.AckWait; got != 17*time.Second {
		t.Errorf("ack_wait %v; want that of the last reload", got)
	}
	if len(r.m.pipelines) != 1 {
		t.Errorf("%d pipelines run", len(r.m.pipelines))
	}
}

// TestHOT08_StopDuringReload: a reload that waits for a handler holds up no
// stop: Apply returns when its context ends, and Drain drains what it left.
func TestHOT08_StopDuringReload(t *testing.T) {
	begun, gate := make(chan struct{}), make(chan struct{})
	r := newRig(t, reloadYAML("a", ""), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		close(begun)
		<-gate
		emit(r, "", "done")
		return nil
	}, "b": by("b")})
	r.pub("orders.a", "1")
	<-begun
	cfg := r.load(reloadYAML("a", ", ack_wait: 7s"))
	ctx, cancel := context.WithCancel(t.Context())
	applied := make(chan error, 1)
	go func() {
		_, err := r.m.Apply(ctx, cfg)
		applied <- err
	}()
	r.eventually(func() error { // the new generation runs, and the old engine drains
		if r.m.Generation() != 2 {
			return errors.New("not taken yet")
		}
		return nil
	})
	cancel()
	if err := <-applied; !errors.Is(err, context.Canceled) {
		t.Errorf("Apply: %v", err)
	}
	drained := make(chan error, 1)
	go func() { drained <- r.m.Drain(t.Context()) }()
	close(gate)
	if err := <-drained; err != nil {
		t.Errorf("Drain: %v", err)
	}
	if n := r.count("MQRUN_ORDERS", "done.orders"); n != 1 {
		t.Errorf("%d outputs; what ran was not finished", n)
	}
	r.restartManager(reloadYAML("a", ""))
}

// TestHOT09_ReloadsLeaveNothing: what a hundred swaps have loaded is closed.
func TestHOT09_ReloadsLeaveNothing(t *testing.T) {
	r, echo := realRig(t)
	yaml := "plugins: { a: { module: a.wasm } }\npipelines: { orders: { from: \"orders.>\", steps: [a], to: done.orders } }\n"
	r.apply(yaml)
	swap := func(n int) {
		r.write("a.wasm", otherwise(echo, n))
		if p := r.apply(yaml); len(p.Swap) != 1 {
			t.Fatalf("plan %s", p)
		}
	}
	for i := range 5 {
		swap(i)
	}
	before := runtime.NumGoroutine()
	for i := range 100 {
		swap(i + 10)
	}
	r.eventually(func() error {
		if n := runtime.NumGoroutine(); n > before+5 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
	r.pub("orders.a", "1")
	r.read("MQRUN_ORDERS", "done.orders", 1)
}

// TestHOT10_ConsumerCannotChange: where a durable starts is refused with a
// hint, and a wider filter is applied: from then on, as the docs say.
func TestHOT10_ConsumerCannotChange(t *testing.T) {
	yaml := func(from, more string) string {
		return fmt.Sprintf("plugins: { a: { module: a.wasm }, b: { module: b.wasm } }\npipelines:\n  orders: { from: %s, steps: [a], to: done.orders %s }\n  all: { from: \"other.>\", steps: [b], to: done.other }\nstreams: { IN: { subjects: [\"orders.>\"] } }\n", from, more)
	}
	r := newRig(t, yaml("[orders.a]", ", start: new"), map[string]native{"a": by("a"), "b": by("b")})
	created := func() time.Time {
		c, err := r.js().Consumer(t.Context(), "IN", "mqrun-orders")
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().Created
	}
	was := created()
	_, err := r.m.Apply(t.Context(), r.load(yaml("[orders.a]", ", start: all")))
	if ps, ok := errors.AsType[config.Problems](err); !ok || !strings.Contains(ps.Error(), "rename the pipeline") {
		t.Errorf("another start: %v", err)
	}
	for i := range 10 {
		r.pub("orders.b", fmt.Sprint("early ", i))
	}
	r.pub("orders.a", "a")
	r.read("MQRUN_ORDERS", "done.orders", 1)
	if p := r.apply(yaml("[orders.a, orders.b]", ", start: new")); len(p.Restart) != 1 {
		t.Errorf("plan %s", p)
	}
	r.pub("orders.b", "late")
	out := r.read("MQRUN_ORDERS", "done.orders", 2)
	if got := string(out[1].Data()); got != "late by a" {
		t.Errorf("second output %q; want the one that came after the change", got)
	}
	r.idle("orders")
	if n := r.count("MQRUN_ORDERS", "done.orders"); n != 2 || !created().Equal(was) {
		t.Errorf("%d outputs, consumer of %v; want 2 and %v", n, created(), was)
	}
}

// TestReload_again: a pipeline that could not be started again is started by
// the next reload, though its configuration is the same.
func TestReload_again(t *testing.T) {
	r := newRig(t, reloadYAML("a", ""), map[string]native{"a": by("a"), "b": by("b")})
	r.m.mu.Lock()
	e := r.m.pipelines["orders"]
	delete(r.m.pipelines, "orders")
	r.m.mu.Unlock()
	if err := e.drain(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if p := r.apply(reloadYAML("a", "")); p.String() != "start orders" {
		t.Errorf("plan %s", p)
	}
	r.pub("orders.a", "1")
	r.read("MQRUN_ORDERS", "done.orders", 1)
}
