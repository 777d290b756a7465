package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
)

// BenchmarkEngine moves b.N stored messages of 1 KiB through a native step
// that emits its input: consume, publish with an id, PubAck, confirmed ack.
func BenchmarkEngine(b *testing.B) {
	for name, yaml := range map[string]string{"each": one, "batch": batched} {
		for _, sync := range []time.Duration{0, 2 * time.Minute} {
			b.Run(fmt.Sprintf("%s/sync=%v", name, sync), func(b *testing.B) { benchEngine(b, yaml, sync) })
		}
	}
}

func benchEngine(b *testing.B, yaml string, sync time.Duration) {
	r := benchRig(b, sync)
	data := make([]byte, 1024)
	for i := range b.N {
		if _, err := r.js().PublishAsync("orders.a", data); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			<-r.js().PublishAsyncComplete()
		}
	}
	<-r.js().PublishAsyncComplete()
	done := make(chan struct{})
	n := 0
	sub, err := r.mq.NatsConn().Subscribe("done.orders", func(*nats.Msg) {
		if n++; n == b.N {
			close(done)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		b.Fatal(err)
	}
	cfg := r.load(yaml)
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := r.m.Apply(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		b.Fatalf("%d of %d: %+v", n, b.N, r.m.Status())
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func benchRig(b *testing.B, sync time.Duration) *rig {
	r := &rig{t: b, sync: sync, dir: b.TempDir(), native: map[string]native{"a": func(m *host.Message, r *host.Result) error {
		r.Outputs = append(r.Outputs, host.Output{Data: m.Data})
		return nil
	}}, log: &syncWriter{}}
	r.start()
	b.Cleanup(r.stop)
	r.apply(fmt.Sprintf("plugins: { a: { module: a.wasm } }\npipelines: { other: { from: %q, steps: [a], to: done.other } }", "orders.>"))
	// The stream is there now; the consumer that made it goes.
	r.apply("plugins: {}\npipelines: {}")
	return r
}
