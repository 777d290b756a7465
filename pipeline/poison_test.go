package pipeline

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mqrun/mqrun/host"
)

// TestORD03_OneBadItemDoesNotSinkTheBatch: of 100 messages that are committed
// together one is bad, at a random place. It dies alone, and costs the others
// nothing.
func TestORD03_OneBadItemDoesNotSinkTheBatch(t *testing.T) {
	const n = 100
	for name, yaml := range map[string]string{"each": one, "batch": batched} {
		for how, fail := range map[string]func(*host.Result) error{
			"reject": func(r *host.Result) error { r.Code = host.Reject; return nil },
			"trap":   func(*host.Result) error { return &host.CallError{Reason: "trap", Text: "unreachable"} },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				poison := strconv.Itoa(rand.IntN(n))
				var calls atomic.Int64
				gate := make(chan struct{})
				r := newRig(t, strings.Replace(yaml, "ack_wait: 1s", "ack_wait: 5s", 1), map[string]native{"a": func(m *host.Message, r *host.Result) error {
					<-gate // all are there
					calls.Add(1)
					if string(m.Data) == poison {
						return fail(r)
					}
					return echo(m, r)
				}})
				r.feed(0, n)
				close(gate)
				got := map[string]int{}
				for _, m := range r.read("MQRUN_ORDERS", "done.orders", n-1) {
					got[string(m.Data())]++
				}
				dead := r.read("MQRUN_DLQ", "dlq.orders", 1)[0]
				r.eventually(func() error {
					if st := r.m.Status()[0]; st.InFlight > 0 || st.Parked > 0 {
						return fmt.Errorf("%+v", st)
					}
					return nil
				})
				if string(dead.Data()) != poison || got[poison] > 0 || len(got) != n-1 {
					t.Errorf("%s is bad; %s is dead, %d are out", poison, dead.Data(), len(got))
				}
				if a, b := r.count("MQRUN_ORDERS", "done.orders"), r.count("MQRUN_DLQ", "dlq.>"); a != n-1 || b != 1 {
					t.Errorf("%d outputs, %d dead letters", a, b)
				}
				if k := calls.Load(); k > n+2 {
					t.Errorf("%d calls for %d messages, of which one takes three", k, n)
				}
			})
		}
	}
}
