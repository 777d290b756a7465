package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// freeAddresses are held until all are known, so that they differ.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

const clusterYAML = `
server:
  listen: %s
  auth: token-of-all-the-nodes
  max_bytes: 256MiB
  sync: 1m
  cluster: { name: three, listen: "%s", routes: [%s] }
web: { listen: "%s" }
plugins: { pass: { module: pass.wasm } }
pipelines:
  p: { from: ingest.x, steps: pass, to: out.x, ack_wait: 2s }
`

// TestThreeProcessesAreOneCluster kills the nodes one at a time under load:
// every confirmed input has one output.
func TestThreeProcessesAreOneCluster(t *testing.T) {
	t.Parallel()
	at := freeAddresses(t, 9) // clients, routes, web
	var nodes [3]*process
	begin := func(i int) *process {
		dir := folder(t, fmt.Sprintf(clusterYAML, at[i], at[3+i], strings.Join(at[3:6], ", "), at[6+i]))
		return beginRun(t, dir)
	}
	nodes[2] = begin(2)
	var text string
	until(t, "readiness says what is missing", func() bool {
		text = get(t, "http://"+at[8]+"/readyz")
		return strings.Contains(text, "1 of 3 nodes are here")
	})
	if !strings.HasPrefix(text, "503 starting: cluster three") {
		t.Errorf("readyz: %s", text)
	}
	nodes[2].awaitLog(t, "waiting: cluster three")
	nodes[0], nodes[1] = begin(0), begin(1)
	for _, p := range nodes {
		p.up(t)
	}
	urls := "nats://" + strings.Join(at[:3], ",nats://")
	nc, err := nats.Connect(urls, nats.Token("token-of-all-the-nodes"), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}

	const feeders = 4
	var confirmed [feeders]atomic.Int64
	stop := make(chan struct{})
	var feed sync.WaitGroup
	for f := range feeders {
		feed.Go(func() {
			for i := 0; ; {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(f, "-", i)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, err := js.PublishMsg(ctx, &nats.Msg{Subject: "ingest.x", Data: []byte(id), Header: nats.Header{"Nats-Msg-Id": {id}}}, jetstream.WithRetryAttempts(0))
				cancel()
				if err == nil {
					i++
					confirmed[f].Store(int64(i))
				} else if t.Context().Err() != nil {
					return
				}
			}
		})
	}
	total := func() (n int64) {
		for f := range confirmed {
			n += confirmed[f].Load()
		}
		return n
	}
	grows := func(what string) {
		t.Helper()
		from := total()
		until(t, what, func() bool { return total() > from+100 })
	}
	grows("three nodes take messages")
	for i := range nodes {
		nodes[i].signal(t, syscall.SIGKILL)
		<-nodes[i].ended
		grows("two nodes take messages")
		old := nodes[i]
		nodes[i] = beginRun(t, old.dir)
		nodes[i].up(t)
		grows("it is back")
		until(t, "it is ready", func() bool { return strings.HasPrefix(get(t, "http://"+at[6+i]+"/readyz"), "200") })
		until(t, "it has caught up", func() bool { return current(t, js, "MQRUN_P") })
	}
	close(stop)
	feed.Wait()

	want := map[string]bool{}
	for f := range confirmed {
		for i := range confirmed[f].Load() {
			want[fmt.Sprint(f, "-", i)] = true
		}
	}
	until(t, "all is settled", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		c, err := js.Consumer(ctx, "MQRUN", "mqrun-p")
		return err == nil && c.CachedInfo().NumPending+uint64(c.CachedInfo().NumAckPending) == 0
	})
	st, err := js.Stream(t.Context(), "MQRUN_P")
	if err != nil {
		t.Fatal(err)
	}
	info := st.CachedInfo()
	c, err := st.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{"out.x"}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	duplicates, strange := 0, 0
	for n := uint64(0); n < info.State.Msgs; {
		b, err := c.Fetch(500, jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range b.Messages() {
			n++
			id := string(m.Data())
			if seen[id]++; seen[id] > 1 {
				duplicates++
			}
			if !want[id] { // its PubAck was lost with the node that sent it
				strange++
			}
		}
	}
	lost := 0
	for id := range want {
		if seen[id] == 0 {
			lost++
		}
	}
	t.Logf("RESULT kills=3 confirmed=%d outputs=%d duplicates=%d lost=%d", len(want), info.State.Msgs, duplicates, lost)
	if lost > 0 || duplicates > 0 || strange > feeders {
		t.Errorf("lost %d, duplicates %d, without a confirmed input %d", lost, duplicates, strange)
	}
	if info.Config.Replicas != 3 {
		t.Errorf("%d replicas", info.Config.Replicas)
	}

	// A command over one node's socket hears all of them.
	until(t, "status of three processes that are ready", func() bool {
		code, out, _ := runMain(t, "status", "-c", nodes[0].dir+"/pipelines.yaml", "-o", "json")
		return code == 0 && strings.Count(out, `"process"`) == 3
	})
	for _, p := range nodes {
		p.signal(t, syscall.SIGTERM)
	}
	for _, p := range nodes {
		_ = p.end(t) // the last one has no quorum left to give its messages back to
	}
}

// current is whether all replicas of a stream are there and up to date.
func current(t *testing.T, js jetstream.JetStream, stream string) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return false
	}
	k := st.CachedInfo().Cluster
	n := 0
	for _, r := range k.Replicas {
		if r.Current && !r.Offline {
			n++
		}
	}
	return k.Leader != "" && n == 2
}

// get is the status and body of an answer, "" when there is none.
func get(t *testing.T, url string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %s", r.StatusCode, b)
}
