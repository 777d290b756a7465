package pipeline

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
)

// ORD-05: the server goes away in the middle of slow handlers and comes back.
// An outage of three minutes is more than a test may take; that it would make
// no difference is shown by the connections, which try again for ever.
func TestORD05_ServerComesBack(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]string{"none": "none", "order": "subject", "order, for longer than the lease": "subject"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			var calls atomic.Int64
			begun := make(chan struct{}, 100)
			a := srv.join(ordered(order, ""), map[string]native{"a": func(m *host.Message, r *host.Result) error {
				calls.Add(1)
				begun <- struct{}{}
				time.Sleep(300 * time.Millisecond) // the handler's work
				return echo(m, r)
			}})
			for _, nc := range []*nats.Conn{a.m.broker.in, a.m.broker.out, a.mq.NatsConn()} {
				if nc.Opts.MaxReconnect != -1 {
					t.Errorf("%s gives up after %d attempts", nc.Opts.Name, nc.Opts.MaxReconnect)
				}
			}
			for _, s := range numbers("a", 1, 5) {
				srv.pub("orders.a", s)
			}
			<-begun
			srv.listen = strings.TrimPrefix(srv.mq.GetServer().ClientURL(), "nats://")
			srv.stop()
			for _, nc := range []*nats.Conn{a.m.broker.in, a.m.broker.out} {
				for nc.Status() != nats.RECONNECTING {
					<-nc.StatusChanged(nats.RECONNECTING)
				}
			}
			if strings.Contains(name, "lease") {
				a.eventually(func() error {
					p := a.pipeline("orders")
					p.mu.Lock()
					defer p.mu.Unlock()
					if p.active {
						return errors.New("still active without a lease")
					}
					return nil
				})
			}
			srv.start()
			for _, s := range numbers("a", 6, 15) {
				srv.pub("orders.a", s)
			}
			got := srv.outputs(15)
			if slices.Sort(got); len(slices.Compact(got)) != 15 {
				t.Errorf("outputs %v", got)
			}
			if order != "none" {
				if got := srv.outputs(15); !slices.Equal(got, numbers("a", 1, 15)) {
					t.Errorf("outputs %v", got)
				}
			}
			srv.settled("MQRUN", "orders")
			if n := srv.count("MQRUN_ORDERS", "done.orders"); n != 15 {
				t.Errorf("%d outputs; want 15", n)
			}
			a.state("orders", StateRunning, "")
		})
	}
}
