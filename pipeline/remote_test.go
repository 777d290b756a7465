package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/test/natscluster"
)

// remoteServers runs n servers that are not ours.
func remoteServers(t *testing.T, n int, configure func(*natsserver.Options)) *natscluster.Cluster {
	t.Helper()
	c, err := natscluster.Start(t.TempDir(), n, configure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// remoteRig is a rig on servers that are not ours. Nothing is applied yet.
func remoteRig(t *testing.T, url string, copies int, plugins map[string]native) *rig {
	t.Helper()
	r := &rig{t: t, url: url, copies: copies, dir: t.TempDir(), native: plugins, log: &syncWriter{}}
	r.start()
	t.Cleanup(r.stop)
	return r
}

// restricted is a server whose user may not publish to the denied subjects.
func restricted(denied ...string) func(*natsserver.Options) {
	return func(o *natsserver.Options) {
		o.Users = []*natsserver.User{{Username: "u", Password: "p", Permissions: &natsserver.Permissions{
			Publish: &natsserver.SubjectPermission{Deny: denied},
		}}}
	}
}

const echoYAML = `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: ingest.x, steps: a, to: out.p, ack_wait: 2s, retry: { attempts: 1 } } }
`

func TestSEC06_MissingRightsAreNamedAtStart(t *testing.T) {
	c := remoteServers(t, 1, restricted("dlq.>", "out.p", "$JS.ACK.MQRUN.>", "$JS.API.CONSUMER.MSG.NEXT.>"))
	r := remoteRig(t, strings.Replace(c.URL(), "//", "//u:p@", 1), 1, map[string]native{"a": echo})
	_, err := r.m.Apply(r.ctx(), r.load(echoYAML))
	var ps config.Problems
	if !errors.As(err, &ps) {
		t.Fatalf("got %v; want problems", err)
	}
	var got []string
	for _, p := range ps {
		got = append(got, p.Path+": "+p.Message)
	}
	const rest = ` (permissions violation); allow it on the server`
	want := []string{
		`pipelines.p.dead_letter: user "u" of account "$G" may not publish to "dlq.p"` + rest,
		`pipelines.p.from: user "u" of account "$G" may not publish to "$JS.ACK.MQRUN.mqrun-p.>"` + rest,
		`pipelines.p.from: user "u" of account "$G" may not publish to "$JS.API.CONSUMER.MSG.NEXT.MQRUN.mqrun-p"` + rest,
		`pipelines.p.to: user "u" of account "$G" may not publish to "out.p"` + rest,
	}
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestSEC06_MissingRightsAreNamedWhileRunning(t *testing.T) {
	for name, tt := range map[string]struct {
		deny, data, why string
		wait            string // what is stored once the right is there
	}{
		"output":      {"out.p", "x", `publish to out.p: permissions violation for publish to "out.p"`, "out.p"},
		"dead letter": {"dlq.>", "bad", `publish to dlq.p: permissions violation for publish to "dlq.p"`, "dlq.p"},
		"ack":         {"$JS.ACK.>", "x", `permissions violation for publish to "$JS.ACK.MQRUN.mqrun-p.>"`, "out.p"},
		"pull":        {"$JS.API.CONSUMER.MSG.NEXT.>", "x", `permissions violation for publish to "$JS.API.CONSUMER.MSG.NEXT.MQRUN.mqrun-p"`, "out.p"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var live *natsserver.Options
			c := remoteServers(t, 1, func(o *natsserver.Options) { restricted("nothing")(o); live = o })
			r := remoteRig(t, strings.Replace(c.URL(), "//", "//u:p@", 1), 1, map[string]native{
				"a": func(m *host.Message, res *host.Result) error {
					if string(m.Data) == "bad" {
						res.Code = host.Reject
						return nil
					}
					return echo(m, res)
				},
			})
			r.apply(echoYAML)
			reload := func(denied string) {
				o := live.Clone()
				restricted(denied)(o)
				if err := c.Node(0).ReloadOptions(o); err != nil {
					t.Fatal(err)
				}
			}
			reload(tt.deny)
			r.eventually(func() error { // who lost a right is disconnected
				if !r.mq.NatsConn().IsConnected() || !r.m.broker.in.IsConnected() || !r.m.broker.out.IsConnected() {
					return errors.New("not connected")
				}
				return nil
			})
			r.pubRetry("ingest.x", tt.data)
			r.eventually(func() error {
				if st := r.m.Status()[0]; st.State != StateBlocked || !strings.Contains(st.Why, tt.why) {
					return fmt.Errorf("%s: %q", st.State, st.Why)
				}
				return nil
			})
			reload("nothing")
			r.settled(mq.StreamName(), "p")
			r.eventually(func() error {
				if st := r.m.Status()[0]; st.State != StateRunning {
					return fmt.Errorf("%s: %q", st.State, st.Why)
				}
				return nil
			})
			stream := "MQRUN_P"
			if strings.HasPrefix(tt.wait, "dlq") {
				stream = mq.DLQStreamName()
			}
			if n := r.count(stream, tt.wait); n != 1 {
				t.Errorf("%d messages on %s", n, tt.wait)
			}
		})
	}
}

// pubRetry publishes through reconnects.
func (r *rig) pubRetry(subject, data string) {
	r.t.Helper()
	id := fmt.Sprintf("%s-%s-%p", subject, data, r)
	r.eventually(func() error {
		ctx, cancel := context.WithTimeout(r.ctx(), 2*time.Second)
		defer cancel()
		_, err := r.js().PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(data)}, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
		return err
	})
}

func TestORD05_GoesOnAfterTheServerWasAway(t *testing.T) {
	t.Parallel()
	c := remoteServers(t, 1, nil)
	r := remoteRig(t, c.URL(), 1, map[string]native{"a": echo})
	r.apply(echoYAML)
	r.pub("ingest.x", "before")
	r.read("MQRUN_P", "out.p", 1)
	c.Stop(0)
	r.eventually(func() error {
		if r.m.broker.in.IsConnected() || r.m.broker.out.IsConnected() {
			return errors.New("connected")
		}
		return nil
	})
	if err := c.Restart(0); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.pubRetry("ingest.x", fmt.Sprint(i))
	}
	r.settled(mq.StreamName(), "p")
	if n := r.count("MQRUN_P", "out.p"); n != 11 {
		t.Errorf("%d outputs", n)
	}
}

// TestCluster runs the configuration of one server on three, in two managers
// that share the durables, while each server is stopped once.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := remoteServers(t, 3, nil)
	var calls atomic.Int64
	plugins := map[string]native{"a": func(m *host.Message, res *host.Result) error {
		calls.Add(1)
		return echo(m, res)
	}}
	const yaml = `
plugins: { a: { module: a.wasm } }
pipelines:
  p: { from: ingest.x, steps: a, to: mid.p, ack_wait: 2s }
  q: { from: mid.p, steps: a, to: out.q, ack_wait: 2s }
`
	first, second := remoteRig(t, c.URL(), 3, plugins), remoteRig(t, c.URL(), 3, plugins)
	first.apply(yaml)
	second.apply(yaml)
	const each = 200
	sent := 0
	for node := range 3 {
		for range each {
			first.pubRetry("ingest.x", fmt.Sprint(sent))
			sent++
			if sent%each == each/4 {
				c.Stop(node)
			}
		}
		if err := c.Restart(node); err != nil {
			t.Fatal(err)
		}
	}
	first.settled(mq.StreamName(), "p")
	first.settled("MQRUN_P", "q")
	seen := map[string]int{}
	for _, m := range first.read("MQRUN_Q", "out.q", sent) {
		seen[string(m.Data())]++
	}
	if n := first.count("MQRUN_Q", "out.q"); n != sent || len(seen) != sent {
		t.Errorf("%d outputs, %d different ones of %d inputs", n, len(seen), sent)
	}
	for _, name := range []string{"MQRUN", "MQRUN_P", "MQRUN_Q", "MQRUN_DLQ", "MQRUN_AUDIT", "KV_" + BucketAttempts, "KV_" + BucketState} {
		st, err := first.js().Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if n := st.CachedInfo().Config.Replicas; n != 3 {
			t.Errorf("%s has %d replicas", name, n)
		}
	}
	t.Logf("%d inputs, %d handler calls", sent, calls.Load())
	for _, r := range []*rig{first, second} {
		if st := r.m.Status(); st[0].Handled == 0 {
			t.Errorf("one of the two handled nothing: %+v", st)
		}
	}
}
