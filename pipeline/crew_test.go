package pipeline

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mqrun/mqrun/host"
)

// The number of workers changes under a running pipeline, up at once and down
// as handlers end.
func TestWorkersChangeLive(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			var running, most atomic.Int64
			gate := make(chan struct{})
			with := func(n int) string {
				return strings.Replace(one, "ack_wait: 1s", fmt.Sprintf("ack_wait: 30s, commit: %s, workers: %d", commit, n), 1)
			}
			r := newRig(t, with(1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
				n := running.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				<-gate
				running.Add(-1)
				return echo(m, r)
			}})
			reach := func(want int64) {
				t.Helper()
				r.eventually(func() error {
					if n := running.Load(); n != want {
						return fmt.Errorf("%d handlers run; want %d", n, want)
					}
					return nil
				})
			}
			first := r.m.pipelines["orders"]
			const n = 40
			r.feed(0, n)
			reach(1)
			r.apply(with(3))
			reach(3)
			r.apply(with(1))
			for range 2 { // of the three, these are too many
				gate <- struct{}{}
			}
			reach(1)
			most.Store(0)
			close(gate)
			r.exactly(n, false)
			if k := most.Load(); k > 1 {
				t.Errorf("%d handlers ran at once; want 1", k)
			}
			if r.m.pipelines["orders"] != first {
				t.Error("the pipeline was started anew")
			}
		})
	}
}
