package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/host"
)

const unsendableYAML = `
plugins:
  step: {module: step.wasm}
pipelines:
  orders: {from: ingest.orders, steps: [step], to: done.orders, workers: 1%s}
`

// What a stranger's client wrote must not block the pipeline: the fields of a
// message are not its handler's doing.
func TestFieldsThatCannotBeSentBlockNothing(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			r := newRig(t, fmt.Sprintf(unsendableYAML, ", commit: "+commit), map[string]native{
				"step": func(m *host.Message, r *host.Result) error {
					if string(m.Data) == "bad" {
						r.Code = host.Reject
						return nil
					}
					emit(r, "", string(m.Data))
					return nil
				},
			})
			for _, field := range []string{"traceſtate: x", "Nats-a(b): x", "Nats-é: x", "a b: x"} {
				r.rawPublish("ingest.orders", "NATS/1.0\r\n"+field+"\r\n\r\n", "good")
				r.rawPublish("ingest.orders", "NATS/1.0\r\n"+field+"\r\n\r\n", "bad")
			}
			r.read("MQRUN_ORDERS", "done.orders", 4)
			r.read("MQRUN_DLQ", "dlq.orders", 4)
		})
	}
}

// Outputs inherit the trace, however long it is; with it they may not fit. Dead
// letters have more headers than their originals.
func TestHeadersThatDoNotFitBlockNothing(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			r := newRig(t, fmt.Sprintf(unsendableYAML, ", retry: {attempts: 1}, commit: "+commit), map[string]native{
				"step": func(m *host.Message, r *host.Result) error {
					switch string(m.Data) {
					case "bad":
						r.Code = host.Reject
					case "long":
						emit(r, "", strings.Repeat("x", 960_000))
					case "wide":
						emit(r, "", "x", host.Field{Name: "A", Value: strings.Repeat("x", 40_000)}, host.Field{Name: "B", Value: strings.Repeat("x", 40_000)})
					default:
						emit(r, "", "x")
					}
					return nil
				},
			})
			r.pub("ingest.orders", "long", "tracestate", strings.Repeat("t", 60_000))
			r.pub("ingest.orders", "wide")
			r.pub("ingest.orders", "bad", "X", strings.Repeat("x", 65_000))
			r.pub("ingest.orders", "good", "tracestate", strings.Repeat("t", 60_000))
			r.read("MQRUN_ORDERS", "done.orders", 1)
			for _, d := range r.read("MQRUN_DLQ", "dlq.orders", 3) {
				want := reasonPublish
				if d.Headers().Get("Mqrun-Sequence") == "3" {
					want = "rejected"
				}
				if got := d.Headers().Get("Mqrun-Reason"); got != want {
					t.Errorf("message %s: reason %q, want %q", d.Headers().Get("Mqrun-Sequence"), got, want)
				}
			}
		})
	}
}
