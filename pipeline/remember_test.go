package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/host"
)

// TestConsumerDeletedWhileNobodyRan: the pipeline goes on where it stopped: what
// was settled above a message that was not does not come again either.
func TestConsumerDeletedWhileNobodyRan(t *testing.T) {
	for _, order := range []string{"none", "subject"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			yaml := `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: 'ingest.>', steps: a, to: out.p, start: new, order: ` + order + `, retry: { initial: 300ms, jitter: 0 } } }
`
			seen := &calls{}
			pass := make(chan struct{})
			r := newRig(t, yaml, map[string]native{"a": func(m *host.Message, res *host.Result) error {
				seen.add(string(m.Data))
				if string(m.Data) == "3" {
					select {
					case <-pass:
					default:
						res.Code = host.Retry
						return nil
					}
				}
				return echo(m, res)
			}})
			const n = 20
			for i := range n {
				r.pub(fmt.Sprintf("ingest.%d", i), fmt.Sprint(i))
			}
			r.eventually(func() error {
				if k := r.count("MQRUN_P", "out.p"); k < n-1 || seen.of("3") == 0 {
					return fmt.Errorf("%d outputs", k)
				}
				return nil
			})
			r.stopManager()
			st, err := r.js().Stream(r.ctx(), "MQRUN")
			if err != nil {
				t.Fatal(err)
			}
			if err := st.DeleteConsumer(r.ctx(), durable("p")); err != nil {
				t.Fatal(err)
			}
			r.pub("ingest.late", "late") // `start: new` would skip it
			close(pass)
			r.restartManager(yaml)
			r.eventually(func() error {
				if k := r.count("MQRUN_P", "out.p"); k < n+1 {
					return fmt.Errorf("%d outputs", k)
				}
				return nil
			})
			r.settled("MQRUN", "p")
			for i := range n {
				if k := seen.of(fmt.Sprint(i)); i != 3 && k != 1 {
					t.Errorf("%d was handled %d times", i, k)
				}
			}
			if k := seen.of("late"); k != 1 {
				t.Errorf("the late one was handled %d times", k)
			}
			if !strings.Contains(r.log.String(), "goes on from what it remembers") {
				t.Errorf("nothing is said:\n%s", r.log)
			}
		})
	}
}

// TestRemovedDurableIsForgotten: whoever removes a durable of ours wants it so.
func TestRemovedDurableIsForgotten(t *testing.T) {
	const yaml = `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: ingest.a, steps: a, to: out.p } }
`
	seen := &calls{}
	r := newRig(t, yaml, map[string]native{"a": func(m *host.Message, res *host.Result) error {
		seen.add(string(m.Data))
		return echo(m, res)
	}})
	r.pub("ingest.a", "1")
	r.acked("MQRUN", "p", 1)
	r.stopManager()
	all, err := Durables(r.ctx(), r.js(), func(string) bool { return false })
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if err := RemoveDurable(r.ctx(), r.js(), all[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := r.js().Consumer(r.ctx(), "MQRUN", durable("p")); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Fatal(err)
	}
	r.restartManager(yaml)
	r.eventually(func() error {
		if k := seen.of("1"); k != 2 {
			return fmt.Errorf("handled %d times", k)
		}
		return nil
	})
}
