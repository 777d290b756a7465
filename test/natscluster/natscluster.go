// Package natscluster runs a JetStream cluster on loopback addresses in this
// process, as an operator would have it beside mqrun: for tests and for the
// programs that try to break the delivery.
//
// # Caveats
//
// The servers share one process: a node is stopped, never killed, and its store
// is in the page cache of one machine.
package natscluster

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

const startWait = 60 * time.Second

// Cluster is a number of servers, or one server alone. Its methods may be
// called concurrently, but for one node at a time.
type Cluster struct {
	opts []*natsserver.Options

	mu    sync.Mutex
	nodes []*natsserver.Server // nil while stopped
}

// Start runs n servers with their stores below dir and waits until they take
// requests. configure, if not nil, may change the options of each.
func Start(dir string, n int, configure func(*natsserver.Options)) (*Cluster, error) {
	c := &Cluster{nodes: make([]*natsserver.Server, n)}
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var routes []*url.URL
	for i := range n {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[n+i])})
	}
	for i := range n {
		o := &natsserver.Options{
			ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: ports[i], NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: filepath.Join(dir, fmt.Sprintf("n%d", i+1)), JetStreamMaxStore: 1 << 40,
			SyncAlways: true,
		}
		if n > 1 {
			o.Cluster = natsserver.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[n+i]}
			o.Routes = routes
		}
		if configure != nil {
			configure(o)
		}
		c.opts = append(c.opts, o)
	}
	for i := range n {
		if err := c.run(i); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := c.WaitReady(startWait); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// freePorts holds all ports until it knows enough, so that they differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// run starts node i. The server changes the options that it is given.
func (c *Cluster) run(i int) error {
	o := c.opts[i].Clone()
	s, err := natsserver.NewServer(o)
	if err != nil {
		return fmt.Errorf("start node %s: %w", o.ServerName, err)
	}
	go s.Start()
	if !s.ReadyForConnections(startWait) {
		s.Shutdown()
		return fmt.Errorf("start node %s: it takes no connections", o.ServerName)
	}
	c.mu.Lock()
	c.nodes[i] = s
	c.mu.Unlock()
	return nil
}

// Stop ends node i and waits for its end.
func (c *Cluster) Stop(i int) {
	c.mu.Lock()
	s := c.nodes[i]
	c.nodes[i] = nil
	c.mu.Unlock()
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Restart runs a stopped node again on its store and addresses.
func (c *Cluster) Restart(i int) error {
	if err := c.run(i); err != nil {
		return err
	}
	return c.WaitReady(startWait)
}

// Node is the server at i, or nil while it is stopped.
func (c *Cluster) Node(i int) *natsserver.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i]
}

// WaitReady waits until the running nodes have a leader and are up to date.
func (c *Cluster) WaitReady(most time.Duration) error {
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if c.ready() {
			return nil
		}
	}
	return errors.New("the cluster has no leader, or a node is not up to date")
}

func (c *Cluster) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	leader := len(c.nodes) == 1
	for _, s := range c.nodes {
		if s == nil {
			continue
		}
		if h := s.JetStreamIsCurrent(); len(c.nodes) > 1 && !h {
			return false
		}
		leader = leader || s.JetStreamIsLeader()
	}
	return leader
}

// URL lists the clients' addresses of all nodes, with commas between them.
func (c *Cluster) URL() string {
	var all []string
	for i := range c.opts {
		all = append(all, c.NodeURL(i))
	}
	return strings.Join(all, ",")
}

// NodeURL is the clients' address of node i.
func (c *Cluster) NodeURL(i int) string {
	return fmt.Sprintf("nats://127.0.0.1:%d", c.opts[i].Port)
}

// Close ends all nodes.
func (c *Cluster) Close() {
	for i := range c.nodes {
		c.Stop(i)
	}
}
