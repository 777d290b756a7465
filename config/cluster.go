package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Cluster joins the embedded servers of several mqrun processes.
type Cluster struct {
	Name   string   `koanf:"name"`   // "" = the server is alone
	Listen string   `koanf:"listen"` // host:port for the other nodes
	Routes []string `koanf:"routes"` // host:port of the nodes, this one or not
}

// clusterMin is what a quorum is left of when one node goes.
const clusterMin = 3

// Nodes is how many servers the cluster has.
func (c Cluster) Nodes() int {
	n := len(c.Routes)
	if !slices.Contains(c.Routes, c.Listen) {
		n++
	}
	return n
}

// Replicas is on how many servers streams and buckets are kept unless a stream
// says otherwise.
func (c *Config) Replicas() int {
	switch {
	case c.NATS.URL != "":
		return c.NATS.Replicas
	case c.Server.Cluster.Name != "":
		return clusterMin
	}
	return 1
}

// clusterName is a token of a subject: the server puts it into some.
func clusterName(s string) (any, error) {
	if s == "" || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(".*>", r) }) {
		return nil, bad("", "%s is no name: 1 to 64 letters, digits or marks without blanks, dots and wildcards", quote(s))
	}
	return s, nil
}

// route is the address of another node. Whoever joins shows server.auth, so it
// holds no password.
func route(s string) (any, error) {
	address := s
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Scheme != "nats" || u.Path != "" && u.Path != "/":
			return nil, bad("", "is no route such as 10.0.0.2:6222")
		case u.User != nil:
			return nil, bad("", "holds a password; nodes show server.auth to one another")
		}
		address = u.Host
	}
	return port(address)
}

// port is an address that others can be told.
func port(s string) (any, error) {
	if s == "" {
		return nil, bad("", "is empty")
	}
	if _, err := listen(s); err != nil {
		return nil, err
	}
	if strings.HasSuffix(s, ":0") {
		return nil, bad("", "%s: other nodes must know the port", quote(s))
	}
	return s, nil
}

// cluster checks what nodes must agree on, and what they would let in.
func (l *loader) cluster(c *Config) {
	k := c.Server.Cluster
	at := func(keys ...string) []string { return append([]string{"server", "cluster"}, keys...) }
	if !l.index.has(at()...) && k.Name == "" && k.Listen == "" && k.Routes == nil {
		return
	}
	missing := false
	for _, key := range []struct {
		name  string
		empty bool
	}{{"name", k.Name == ""}, {"listen", k.Listen == ""}, {"routes", len(k.Routes) == 0}} {
		if key.empty && !l.broken[join(at(key.name))] {
			l.complain("", fmt.Sprintf("%q is missing", key.name), at()...)
		}
		missing = missing || key.empty
	}
	if missing || l.broken[join(at("routes"))] {
		return
	}
	for i, r := range k.Routes {
		k.Routes[i] = strings.TrimSuffix(strings.TrimPrefix(r, "nats://"), "/")
	}
	slices.Sort(k.Routes)
	k.Routes = slices.Compact(k.Routes)
	c.Server.Cluster = k
	if n := k.Nodes(); n < clusterMin {
		l.complain("", fmt.Sprintf("that is a cluster of %d, which stops when one goes; name %d nodes at least", n, clusterMin), at("routes")...)
	}
	switch c.Server.Auth {
	case "":
		l.complain("", "nodes know one another by server.auth: write the same token on all of them (the one that is made at first start differs)", at()...)
	case "none":
		for _, address := range append([]string{k.Listen}, k.Routes...) {
			if !loopback(address) {
				l.complain("", fmt.Sprintf("none lets everybody join who reaches %s; write the same token on all nodes", quote(k.Listen)), "server", "auth")
				break
			}
		}
	}
	for _, other := range []struct{ address, key string }{{c.Server.Listen, "server.listen"}, {c.Web.Listen, "web.listen"}} {
		if other.address == k.Listen {
			l.complain("", "is also "+other.key, at("listen")...)
		}
	}
}

// All are the routes that the server is told: it takes their number for the size of the
// cluster, so this node is one of them.
func (c Cluster) All() []string {
	if slices.Contains(c.Routes, c.Listen) {
		return c.Routes
	}
	self := c.Listen
	if host, port, err := net.SplitHostPort(self); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			self = net.JoinHostPort("127.0.0.1", port)
		}
	}
	return append(slices.Clone(c.Routes), self)
}
