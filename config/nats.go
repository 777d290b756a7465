package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// natsURL is one or more server URLs with commas between them. They may hold a
// password, so their text is never part of a message.
func natsURL(s string) (any, error) {
	if s == "" {
		return nil, bad("", "is empty")
	}
	all := strings.Split(s, ",")
	for i, one := range all {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		all[i] = one
		which := ""
		if len(all) > 1 {
			which = fmt.Sprintf("address %d ", i+1)
		}
		u, err := url.Parse(one)
		if err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/" {
			return nil, bad("", "%sis not a server's address such as nats://host:4222", which)
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return nil, bad("", "%shas the scheme %s; the schemes are nats, tls, ws and wss", which, quote(u.Scheme))
		}
	}
	return strings.Join(all, ","), nil
}

// nats checks the server that is used instead of the embedded one. Of server's
// keys two have a meaning then: the folder, where the crash journal and the
// compiled modules lie, and what all streams may hold.
func (l *loader) nats(c *Config) {
	if !l.index.has("nats") && c.NATS.URL == "" {
		l.replicas(c)
		return
	}
	if c.NATS.URL == "" && !l.broken[join([]string{"nats", "url"})] {
		l.complain("", `"url" is missing`, "nats")
	}
	const both = "nats takes the place of server; only one of them can be there"
	if l.index.has("server") {
		l.complain("", both, "nats")
	} else if s, _ := l.schema.child("server"); slices.ContainsFunc(s.keys(), func(k string) bool { return k != "store_dir" && k != "max_bytes" && l.index.has("server", k) }) {
		l.complain("", both+"; beside it only server.store_dir and server.max_bytes can be overridden", "server")
	}
	if n := c.NATS; n.Creds != "" && n.NKey != "" {
		l.complain("", "creds holds a key already; leave one of them out", "nats", "nkey")
	}
	if t := c.NATS.TLS; (t.Cert == "") != (t.Key == "") {
		l.complain("", "cert and key go together", "nats", "tls")
	}
}

// replicas are copies on different servers.
func (l *loader) replicas(c *Config) {
	for _, name := range sorted(c.Streams) {
		n, k := c.Streams[name].Replicas, c.Server.Cluster
		switch {
		case n > 1 && k.Name == "":
			l.complain("", fmt.Sprintf("%d copies need %d servers; one embedded server keeps 1, a cluster is named by nats.url or server.cluster", n, n), "streams", name, "replicas")
		case k.Name != "" && n > k.Nodes():
			l.complain("", fmt.Sprintf("%d copies need %d servers; server.cluster has %d", n, n, k.Nodes()), "streams", name, "replicas")
		}
	}
}
