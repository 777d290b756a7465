//go:build !race

// The server itself writes a field without a lock when JetStream begins again
// (server/jetstream_api.go, setJetStreamExportSubs), which the detector reports.

package pipeline

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/mqrun/mqrun/host"
)

// TestLIF05_NothingIsLostWhileTheStoreIsClosed: the store is closed under
// handlers that run, as after a full disk, and opened again. The disk itself is
// filled by test/chaos.
func TestLIF05_NothingIsLostWhileTheStoreIsClosed(t *testing.T) {
	const n = 20
	var calls atomic.Int64
	gate := make(chan struct{})
	yaml := `
plugins: { a: { module: a.wasm } }
pipelines: { orders: { from: "orders.>", steps: [a], to: done.orders, workers: 4, max_in_flight: 8 } }
`
	r := newRig(t, yaml, map[string]native{"a": func(m *host.Message, r *host.Result) error {
		calls.Add(1)
		<-gate
		if string(m.Data) == "3" {
			r.Code = host.Reject
			return nil
		}
		return echo(m, r)
	}})
	for i := range n {
		r.pub("orders.x", fmt.Sprint(i))
	}
	r.eventually(func() error {
		if k := calls.Load(); k < 4 {
			return fmt.Errorf("%d handlers run", k)
		}
		return nil
	})
	if err := r.mq.GetServer().ShutdownJetStream(); err != nil {
		t.Fatal(err)
	}
	close(gate)
	r.eventually(func() error {
		if !r.mq.GetServer().JetStreamEnabled() {
			return fmt.Errorf("the store is closed")
		}
		return nil
	})
	r.read("MQRUN_ORDERS", "done.orders", n-1)
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	r.settled("MQRUN", "orders")
	if a, b := r.count("MQRUN_ORDERS", "done.orders"), r.count("MQRUN_DLQ", "dlq.>"); a != n-1 || b != 1 {
		t.Errorf("%d outputs, %d dead letters", a, b)
	}
}
