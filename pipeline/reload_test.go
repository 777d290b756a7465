package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

func reloadYAML(module string, more string) string {
	return fmt.Sprintf(`
plugins: { a: { module: %s.wasm }, b: { module: b.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [a], to: done.orders %s }
  other: { from: "other.>", steps: [b], to: done.other }
`, module, more)
}

func TestReloadPlan(t *testing.T) {
	ok := func(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)); return nil }
	r := newRig(t, reloadYAML("a", ""), map[string]native{"a": ok, "a2": ok, "b": ok})
	other := r.m.pipelines["other"]
	for _, tt := range []struct {
		name, yaml string
		want       Plan
	}{
		{"nothing", reloadYAML("a", ""), Plan{Keep: []string{"orders", "other"}}},
		{"module", reloadYAML("a2", ""), Plan{Keep: []string{"other"}, Swap: []string{"orders"}}},
		{"retry", reloadYAML("a2", ", retry: { attempts: 2 }"), Plan{Keep: []string{"other"}, Swap: []string{"orders"}}},
		{"ack_wait", reloadYAML("a2", ", ack_wait: 7s"), Plan{Keep: []string{"other"}, Restart: []string{"orders"}}},
		{"add", reloadYAML("a2", ", ack_wait: 7s") + "  third: { from: third.x, steps: [b] }\n", Plan{Keep: []string{"orders", "other"}, Start: []string{"third"}}},
		{"remove", reloadYAML("a2", ", ack_wait: 7s"), Plan{Keep: []string{"orders", "other"}, Stop: []string{"third"}}},
		{"server key", "server: { max_payload: 2MiB }" + reloadYAML("a2", ", ack_wait: 7s"), Plan{Keep: []string{"orders", "other"}, Restarting: "server.max_payload"}},
	} {
		got := r.apply(tt.yaml)
		got.Generation = 0
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
	if r.m.pipelines["other"] != other {
		t.Error("an unchanged pipeline was touched")
	}
	if _, err := r.js().Consumer(t.Context(), "MQRUN", "mqrun-third"); err != nil {
		t.Errorf("the removed pipeline's durable is gone: %v", err)
	}
}

func TestReloadProblemChangesNothing(t *testing.T) {
	ok := func(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)); return nil }
	r := newRig(t, reloadYAML("a", ""), map[string]native{"a": ok, "b": ok})
	before, generation := r.m.pipelines["orders"], r.m.Generation()
	r.write("broken.wasm", "no such native plugin")
	for name, yaml := range map[string]string{
		"module": reloadYAML("broken", "") + "  third: { from: third.x, steps: [b] }\n",
		"start":  reloadYAML("a", ", start: new"),
	} {
		_, err := r.m.Apply(t.Context(), r.load(yaml))
		if ps, ok := errors.AsType[config.Problems](err); !ok || len(ps) == 0 || ps[0].Line == 0 {
			t.Errorf("%s: %v; want problems with a place", name, err)
		}
	}
	if r.m.pipelines["orders"] != before || r.m.Generation() != generation || r.m.pipelines["third"] != nil {
		t.Error("the running generation changed")
	}
	r.pub("orders.a", "x")
	r.read("MQRUN_ORDERS", "done.orders", 1)
}

func TestReloadUnderLoad(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			var calls, redelivered atomic.Int64
			handle := func(name string) native {
				return func(m *host.Message, r *host.Result) error {
					calls.Add(1)
					if m.Attempt > 1 {
						redelivered.Add(1)
					}
					emit(r, "", string(m.Data)+" by "+name)
					return nil
				}
			}
			r := newRig(t, reloadYAML("a", ", commit: "+commit), map[string]native{"a": handle("a"), "a2": handle("a2"), "b": handle("b")})
			stop := make(chan struct{})
			var feed sync.WaitGroup
			sent := 0
			feed.Go(func() {
				for ; ; sent++ {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := r.js().PublishMsg(t.Context(), &nats.Msg{Subject: "orders.a", Data: fmt.Append(nil, sent)}); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for i := range 30 {
				module := []string{"a", "a2"}[i%2]
				more := ", commit: " + commit
				if i%5 == 4 {
					more += fmt.Sprintf(", ack_wait: %ds", 10+i)
				}
				r.apply(reloadYAML(module, more))
			}
			close(stop)
			feed.Wait()
			r.settled("MQRUN", "orders")
			seen, by := map[string]int{}, map[string]int{}
			for _, m := range r.read("MQRUN_ORDERS", "done.orders", sent) {
				n, name, _ := strings.Cut(string(m.Data()), " by ")
				seen[n]++
				by[name]++
			}
			if got := r.count("MQRUN_ORDERS", "done.orders"); got != sent || len(seen) != sent {
				t.Errorf("%d outputs of %d inputs, %d distinct", got, sent, len(seen))
			}
			if int(calls.Load()) != sent || redelivered.Load() != 0 {
				t.Errorf("%d handler calls for %d inputs, %d redelivered", calls.Load(), sent, redelivered.Load())
			}
			if by["a"] == 0 || by["a2"] == 0 {
				t.Errorf("not both modules ran: %v", by)
			}
		})
	}
}

func TestSwapLetsTheOldChainEnd(t *testing.T) {
	begun, gate := make(chan struct{}), make(chan struct{})
	ok := func(m *host.Message, r *host.Result) error { emit(r, "", "new"); return nil }
	r := newRig(t, reloadYAML("a", ""), map[string]native{"a": func(m *host.Message, r *host.Result) error {
		close(begun)
		<-gate
		emit(r, "", "old")
		return nil
	}, "a2": ok, "b": ok})
	r.pub("orders.a", "1")
	<-begun
	r.apply(reloadYAML("a2", ""))
	r.pub("orders.a", "2")
	if got := string(r.read("MQRUN_ORDERS", "done.orders", 1)[0].Data()); got != "new" {
		t.Errorf("first output %q: new messages wait for the old chain", got)
	}
	close(gate)
	if got := string(r.read("MQRUN_ORDERS", "done.orders", 2)[1].Data()); got != "old" {
		t.Errorf("second output %q", got)
	}
	r.eventually(func() error {
		if n := r.m.Status()[0].InFlight; n != 0 {
			return fmt.Errorf("%d in flight", n)
		}
		return nil
	})
}
