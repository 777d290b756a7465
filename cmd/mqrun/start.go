package main

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

// started is what run says once everything runs.
type started struct {
	Config    []string       `json:"config"`
	Store     string         `json:"store"`
	Sync      string         `json:"sync,omitempty"`
	Replicas  int            `json:"replicas,omitempty"` // on a cluster
	Cluster   string         `json:"cluster,omitempty"`  // of embedded servers
	NATS      string         `json:"nats,omitempty"`     // without the token
	TokenFile string         `json:"token_file,omitempty"`
	Web       string         `json:"web,omitempty"`
	Pipelines []startedChain `json:"pipelines"`
}

type startedChain struct {
	Name       string   `json:"name"`
	From       []string `json:"from"`
	Steps      []string `json:"steps"`
	To         []string `json:"to"`
	DeadLetter string   `json:"dead_letter"`
}

func (c *cli) printStart(cfg *config.Config, q *mq.EmbeddedNATS, l net.Listener) error {
	s := started{Config: cfg.Files, Store: cfg.Server.StoreDir, Sync: "always", Pipelines: []startedChain{}}
	switch {
	case cfg.NATS.URL != "":
		s.NATS, s.Sync, s.Replicas = mq.Redacted(cfg.NATS.URL), "", q.Replicas()
	case !cfg.Server.Sync.Always:
		s.Sync = cfg.Server.Sync.Interval.String()
	}
	if k := cfg.Server.Cluster; k.Name != "" && cfg.NATS.URL == "" {
		s.Cluster, s.Replicas = k.Name, q.Replicas()
	}
	if cfg.Server.Listen != "" && cfg.NATS.URL == "" {
		s.NATS = q.GetServer().ClientURL()
		if cfg.Server.Auth == "" {
			s.TokenFile = filepath.Join(cfg.Server.StoreDir, tokenName)
		}
	}
	if l != nil {
		s.Web = "http://" + l.Addr().String()
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Pipelines)) {
		p := cfg.Pipelines[name]
		s.Pipelines = append(s.Pipelines, startedChain{name, p.From, p.Steps, cfg.Publishes(name), p.DeadLetter})
	}
	switch {
	case c.json():
		return c.printJSON(s)
	case c.quiet:
		return nil
	}
	return table(c.stdout, s.rows(cfg))
}

// rows is the text for people. The token itself is not shown: what run prints
// ends up in logs.
func (s started) rows(cfg *config.Config) [][]string {
	durable := "sync always: a confirmed message survives a power cut"
	if !cfg.Server.Sync.Always {
		durable = fmt.Sprintf("sync every %s: a power cut may lose the confirmed messages of that time", s.Sync)
	}
	client := "off; mqrun pub and mqrun dlq use the socket in the store (server.listen lets others in)"
	if s.NATS != "" {
		client = s.NATS + "   try: nats -s " + clientURL(s, cfg.Server.Auth) + " sub '>'"
	}
	url := s.Web
	if url == "" {
		url = "off"
	}
	rows := [][]string{{"config", strings.Join(s.Config, ", ")}}
	if cfg.NATS.URL != "" {
		rows = append(rows,
			[]string{"nats", fmt.Sprintf("%s, %d replicas; how often it syncs is its own setting (sync_interval)", s.NATS, s.Replicas)},
			[]string{"folder", s.Store + ", for the crash journal and compiled modules"})
	} else {
		rows = append(rows,
			[]string{"store", fmt.Sprintf("%s, at most %s, %s", s.Store, size(cfg.Server.MaxBytes), durable)},
			[]string{"nats", client})
		if k := cfg.Server.Cluster; s.Cluster != "" {
			rows = append(rows, []string{"cluster", fmt.Sprintf("%s of %d nodes, %d replicas; this one listens on %s", k.Name, k.Nodes(), s.Replicas, k.Listen)})
		}
	}
	rows = append(rows, []string{"web", url})
	for i, p := range s.Pipelines {
		head := ""
		if i == 0 {
			head = "pipelines"
		}
		to := strings.Join(p.To, ", ")
		if to == "" {
			to = "(nothing)"
		}
		rows = append(rows, []string{head, fmt.Sprintf("%s: %s -> %s -> %s", p.Name, strings.Join(p.From, ", "), strings.Join(p.Steps, ", "), to)})
	}
	return rows
}

// clientURL is what a shell makes the whole URL from.
func clientURL(s started, auth string) string {
	host := strings.TrimPrefix(s.NATS, "nats://")
	switch auth {
	case authNone:
		return s.NATS
	case "":
		return fmt.Sprintf(`"nats://$(cat '%s')@%s"`, s.TokenFile, host)
	}
	return fmt.Sprintf(`"nats://$TOKEN@%s"`, host)
}
