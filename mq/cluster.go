package mq

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Cluster joins the embedded servers of several processes into one JetStream
// cluster.
type Cluster struct {
	// Name is the same on all nodes; "" is a server on its own.
	Name string
	// Listen is the host:port for the other nodes. They have to show
	// [Options.Token], unless NoAuth lets everybody join.
	Listen string
	// Routes are the host:port of all nodes, this one too: their number is what
	// a quorum is counted from when the cluster begins.
	Routes []string
}

// ErrStoreOfNode is returned by Open when the store belongs to a node of
// another cluster, or to a server on its own where a node is opened, or the
// other way round: the server would throw away what does not fit.
var ErrStoreOfNode = errors.New("store does not fit the cluster")

const (
	nodeFile    = "NODE"
	routeUser   = "mqrun"
	quorumEvery = 50 * time.Millisecond
	quorumSay   = 10 * time.Second
	placeWait   = 10 * time.Second
)

// node is whose store it is. The server's name is its identity in the cluster:
// it must outlive restarts and be no other node's.
type node struct {
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
}

// node reads who the store belongs to, or makes it the node of a cluster. A
// store with streams of a server on its own is never made one.
func (s *store) node(c Cluster) (node, error) {
	path := filepath.Join(s.dir, nodeFile)
	var n node
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if c.Name == "" {
			return node{Name: serverName}, nil
		}
		if found, err := filepath.Glob(filepath.Join(s.dir, "jetstream", "*", "streams", "*")); err != nil || len(found) > 0 {
			return n, errors.Join(err, fmt.Errorf("open store %q: %w: it holds streams of a server on its own, which a cluster would delete; begin with an empty folder", s.dir, ErrStoreOfNode))
		}
		n = node{Cluster: c.Name, Name: serverName + "-" + strings.ToLower(rand.Text()[:8])}
		if text, err = json.Marshal(n); err != nil {
			return n, err
		}
		return n, writeFile(path, text)
	case err != nil:
		return n, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(text, &n); err != nil || n.Name == "" {
		return n, fmt.Errorf("read %s: it does not say which node this is; restore it from a backup, or begin with an empty folder and let the other nodes fill it", path)
	}
	switch {
	case c.Name == "":
		return n, fmt.Errorf("open store %q: %w: it belongs to node %s of cluster %q; without the others it is not whole", s.dir, ErrStoreOfNode, n.Name, n.Cluster)
	case c.Name != n.Cluster:
		return n, fmt.Errorf("open store %q: %w: it belongs to node %s of cluster %q, not %q", s.dir, ErrStoreOfNode, n.Name, n.Cluster, c.Name)
	}
	return n, nil
}

// join sets the server's options for its cluster.
func (c Cluster) join(so *natsserver.Options, token string) error {
	if c.Name == "" {
		return nil
	}
	host, port, err := tryListen(c.Listen)
	if err != nil {
		return err
	}
	so.Cluster = natsserver.ClusterOpts{Name: c.Name, Host: host, Port: port}
	if so.DontListen {
		// The server opens no routes before it listens for clients, so it listens,
		// where nobody is told, and lets nobody in.
		so.DontListen, so.Host, so.Port, so.Cluster.NoAdvertise = false, "127.0.0.1", natsserver.RANDOM_PORT, true
		so.CustomClientAuthentication = tokenAuth(sha256.Sum256([]byte(rand.Text())))
	}
	var user *url.Userinfo
	if token != "" {
		so.Cluster.Username, so.Cluster.Password = routeUser, token
		user = url.UserPassword(routeUser, token)
	}
	for _, r := range c.Routes {
		so.Routes = append(so.Routes, &url.URL{Scheme: "nats", Host: r, User: user})
	}
	return nil
}

func (c Cluster) check(o *Options) error {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case c.Name == "":
		return nil
	case err != nil:
		return fmt.Errorf("%w: %q is not host:port", ErrListen, c.Listen)
	case len(c.Routes) < 2:
		return errors.New("a cluster needs the routes of its nodes")
	case o.Token == "" && !(o.NoAuth && loopback(host)):
		return fmt.Errorf("%w: cluster address %s has no authentication; set the same token on all nodes", ErrListen, c.Listen)
	}
	return nil
}

// Quorum is "" when the server is on its own or its cluster can decide, else a
// text for people: how many nodes are here, and that nothing is stored until
// more are.
func (e *EmbeddedNATS) Quorum() string {
	if e.srv == nil || e.opts.Cluster.Name == "" {
		return ""
	}
	if h := e.srv.Healthz(&natsserver.HealthzOptions{JSMetaOnly: true}); h.Error == "" {
		return ""
	}
	n, of := e.nodes(), len(e.opts.Cluster.Routes)
	text := fmt.Sprintf("cluster %s has no quorum: %d of %d nodes are here", e.opts.Cluster.Name, n, of)
	if n > of/2 {
		text = fmt.Sprintf("cluster %s elects a leader: %d of %d nodes are here", e.opts.Cluster.Name, n, of)
	}
	return text + "; nothing is stored until it has one"
}

// nodes counts this one and those that it has a route to.
func (e *EmbeddedNATS) nodes() int {
	seen := map[string]bool{}
	if r, err := e.srv.Routez(nil); err == nil {
		for _, route := range r.Routes {
			seen[route.RemoteName] = true
		}
	}
	return len(seen) + 1
}

// awaitCluster waits until the cluster can decide, and one that holds nothing
// yet until there are as many nodes as replicas: streams are made on all of them.
func (e *EmbeddedNATS) awaitCluster(ctx context.Context) error {
	if e.srv == nil || e.opts.Cluster.Name == "" {
		return nil
	}
	tick := time.NewTicker(quorumEvery)
	defer tick.Stop()
	said, at := "", time.Time{}
	for {
		why := e.Quorum()
		if why == "" {
			why = e.unborn(ctx)
		}
		if e.opts.Waiting != nil {
			e.opts.Waiting(why)
		}
		if why == "" {
			e.log.Info("the cluster has a quorum", "cluster", e.opts.Cluster.Name, "node", e.srv.Name(), "nodes", e.nodes())
			return nil
		}
		if now := time.Now(); why != said && now.Sub(at) > time.Second || now.Sub(at) > quorumSay {
			said, at = why, now
			e.log.Warn("waiting: " + why)
		}
		select {
		case <-tick.C:
		case err := <-e.srvLog.fatal:
			return fmt.Errorf("start server: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", why, context.Cause(ctx))
		}
	}
}

// unborn says which nodes a cluster without any stream waits for.
func (e *EmbeddedNATS) unborn(ctx context.Context) string {
	n := e.nodes()
	if n >= e.Replicas() {
		return ""
	}
	ask, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	a, err := e.js.AccountInfo(ask)
	if err == nil && a.Streams > 0 {
		return ""
	}
	return fmt.Sprintf("cluster %s is new and waits for all nodes: %d of %d are here", e.opts.Cluster.Name, n, e.Replicas())
}

// placed makes a stream or bucket again while the cluster's leader does not know enough
// of the nodes yet: that takes it a moment after they joined.
func placed[T any](ctx context.Context, replicas int, create func() (T, error)) (T, error) {
	for deadline := time.Now().Add(placeWait); ; {
		st, err := create()
		if replicas <= 1 || !hasCode(err, codeNoPeers) || time.Now().After(deadline) {
			return st, err
		}
		select {
		case <-time.After(4 * quorumEvery):
		case <-ctx.Done():
			return st, err
		}
	}
}

// unsettledWait is how long a start waits for a cluster that has a quorum but
// whose streams still elect leaders: some ten seconds after a node was killed.
const unsettledWait = 2 * time.Minute

// Settled repeats f while the cluster of embedded servers does not answer: each
// stream elects its own leader. A server on its own is asked once.
func (e *EmbeddedNATS) Settled(ctx context.Context, f func() error) error {
	for begin := time.Now(); ; {
		err := f()
		if e.opts.Cluster.Name == "" || e.srv == nil || !unsettled(err) || ctx.Err() != nil || time.Since(begin) > unsettledWait {
			return err
		}
		e.log.Warn("the cluster does not answer yet; trying again", "error", err)
		select {
		case <-time.After(20 * quorumEvery):
		case <-ctx.Done():
			return err
		}
	}
}

func unsettled(err error) bool {
	for _, target := range []error{context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, jetstream.ErrNoStreamResponse} {
		if errors.Is(err, target) {
			return true
		}
	}
	// Of a stream that another node makes at this moment some know and others do not.
	for _, code := range []jetstream.ErrorCode{codeUnavailable, codeNoPeers, jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeStreamNameInUse} {
		if hasCode(err, code) {
			return true
		}
	}
	return errors.Is(err, jetstream.ErrBucketNotFound)
}
