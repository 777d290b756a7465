package mq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mqrun/mqrun/mq"
)

// trio is three nodes of one cluster in this process.
type trio struct {
	t     *testing.T
	dir   string
	ports []string
	nodes [3]*mq.EmbeddedNATS

	mu   sync.Mutex
	said []string // what was waited for
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{t: t, dir: t.TempDir()}
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c.ports = append(c.ports, l.Addr().String())
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if n != nil {
				_ = n.Close()
			}
		}
	})
	return c
}

func (c *trio) options(i int) mq.Options {
	return mq.Options{
		StoreDir: filepath.Join(c.dir, fmt.Sprint("n", i)), SyncInterval: time.Minute, Token: "secret-of-the-nodes", Replicas: 3, Logger: slog.New(slog.DiscardHandler),
		Cluster: mq.Cluster{Name: "three", Listen: c.ports[i], Routes: c.ports},
		Waiting: func(why string) {
			c.mu.Lock()
			c.said = append(c.said, why)
			c.mu.Unlock()
		},
	}
}

// start opens nodes side by side.
func (c *trio) start(which ...int) {
	c.t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for _, i := range which {
		wg.Go(func() { c.nodes[i], errs[i] = mq.Open(deadline(c.t), c.options(i)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) heard(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.said {
		if strings.Contains(s, text) {
			return true
		}
	}
	return false
}

func TestThreeNodesAreOneCluster(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	// The first one alone waits, and says what for.
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := mq.Open(ctx, c.options(0))
		failed <- err
	}()
	until(t, "the first node says that it waits", func() bool { return c.heard("1 of 3 nodes are here") })
	gone := errors.New("enough")
	cancel(gone)
	if err := <-failed; !errors.Is(err, gone) || !strings.Contains(err.Error(), "1 of 3 nodes") {
		t.Fatalf("got %v", err)
	}
	c.start(2, 0, 1)
	for i, n := range c.nodes {
		if why := n.Quorum(); why != "" {
			t.Errorf("node %d: %s", i, why)
		}
	}
	if err := c.nodes[1].Publish(deadline(t), "ingest.x", []byte("one")); err != nil {
		t.Fatal(err)
	}
	st, err := c.nodes[2].JetStream().Stream(deadline(t), mq.StreamName())
	if err != nil {
		t.Fatal(err)
	}
	info := st.CachedInfo()
	if info.Config.Replicas != 3 || info.State.Msgs != 1 {
		t.Errorf("%d replicas, %d messages", info.Config.Replicas, info.State.Msgs)
	}

	// With one gone it goes on, with two gone it says so.
	for i := range 2 {
		if err := c.nodes[i].Close(); err != nil {
			t.Fatal(err)
		}
		c.nodes[i] = nil
		if i == 0 {
			until(t, "two nodes store", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return c.nodes[2].Publish(ctx, "ingest.x", []byte("two")) == nil
			})
		}
	}
	until(t, "one node has no quorum", func() bool { return strings.Contains(c.nodes[2].Quorum(), "no quorum: 1 of 3") })
	c.start(0, 1)
	until(t, "the quorum is back", func() bool { return c.nodes[2].Quorum() == "" })
	until(t, "three nodes store", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return c.nodes[0].Publish(ctx, "ingest.x", []byte("three")) == nil
	})
}

func TestStoreOfANode(t *testing.T) {
	c := newTrio(t)
	alone := c.options(0)
	alone.Cluster, alone.Replicas = mq.Cluster{}, 1
	q := open(t, alone)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	refused := func(o mq.Options, text string) {
		t.Helper()
		_, err := mq.Open(deadline(t), o)
		if !errors.Is(err, mq.ErrStoreOfNode) || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v; want %q", err, text)
		}
	}
	refused(c.options(0), "a server on its own")
	// A node's store, of which the node has only made the name.
	o := c.options(1)
	if err := os.MkdirAll(o.StoreDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.StoreDir, "NODE"), []byte(`{"cluster":"other","name":"mqrun-x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(o, `cluster "other"`)
	o.Cluster = mq.Cluster{}
	refused(o, "without the others")

	for _, tt := range []struct {
		change func(*mq.Options)
		want   string
	}{
		{func(o *mq.Options) { o.Token = "" }, "no authentication"},
		{func(o *mq.Options) { o.Token, o.NoAuth, o.Cluster.Listen = "", true, "0.0.0.0:1" }, "no authentication"},
		{func(o *mq.Options) { o.Cluster.Listen = "x" }, "not host:port"},
		{func(o *mq.Options) { o.Cluster.Routes = nil }, "routes"},
	} {
		o := c.options(2)
		tt.change(&o)
		if _, err := mq.Open(deadline(t), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v; want %q", err, tt.want)
		}
	}
}

// A node that does not know the token stays outside.
func TestNodeWithAnotherToken(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	var l logs
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 2 {
		o := c.options(i)
		o.Logger = l.logger()
		if i == 1 {
			o.Token = "another"
		}
		wg.Go(func() {
			if _, err := mq.Open(ctx, o); err == nil {
				t.Error("it is open")
			}
		})
	}
	until(t, "the log says why", func() bool { return strings.Contains(l.String(), "uthorization") })
	if c.heard("2 of 3") {
		t.Error("it has joined")
	}
	cancel()
	wg.Wait()
}
