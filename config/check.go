package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mqrun/mqrun/subject"
)

// check finds what is wrong between values that are sound one by one.
func (l *loader) check(c *Config) {
	l.required(l.schema)
	l.server(c)
	l.cluster(c)
	l.nats(c)
	l.reserved(c)
	for _, name := range sorted(c.Streams) {
		l.stream(c, c.Streams[name])
	}
	l.modules(c)
	for _, name := range sorted(c.Plugins) {
		l.allow(c, c.Plugins[name])
	}
	for _, name := range sorted(c.Pipelines) {
		l.pipeline(c, c.Pipelines[name])
	}
	l.outputs(c)
	l.loops(c)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// complain adds a problem at the place of a key.
func (l *loader) complain(hint, message string, path ...string) {
	l.problems = append(l.problems, l.index.problem(message, hint, path))
}

// required finds named things without the keys that they cannot do without.
func (l *loader) required(f field) {
	for _, group := range f.fields {
		if group.shape != named {
			continue
		}
		for path := range l.defined {
			parts := strings.Split(path, delim)
			if parts[0] != group.key || l.broken[path] {
				continue
			}
			for _, k := range group.fields {
				if k.need && !l.index.has(child(parts, k.key)...) {
					l.complain("", fmt.Sprintf("%q is missing", k.key), parts...)
				}
			}
		}
	}
}

func (l *loader) server(c *Config) {
	if s := c.Server; s.Auth == "none" && s.Listen != "" && !loopback(s.Listen) {
		l.complain("", fmt.Sprintf("none lets everybody in who reaches %s; leave the key out and a token is made, or listen on 127.0.0.1", quote(s.Listen)), "server", "auth")
	}
	if w := c.Web; w.Listen != "" && !loopback(w.Listen) {
		l.complain("", quote(w.Listen)+" is not on loopback, and tokens for the web listener are not in this version; listen on 127.0.0.1", "web", "listen")
	}
	if c.Server.Listen != "" && c.Server.Listen == c.Web.Listen && !strings.HasSuffix(c.Web.Listen, ":0") {
		l.complain("", "is also server.listen", "web", "listen")
	}
}

func (l *loader) pipeline(c *Config, p *Pipeline) {
	at := func(keys ...string) []string { return append([]string{"pipelines", p.Name}, keys...) }
	if len(p.From) == 0 && l.index.has(at("from")...) && !l.broken[join(at("from"))] {
		l.complain("", "the list is empty", at("from")...)
	}
	if len(p.Steps) == 0 && l.index.has(at("steps")...) && !l.broken[join(at("steps"))] {
		l.complain("", "the list is empty", at("steps")...)
	}
	for i, step := range p.Steps {
		if _, ok := c.Plugins[step]; !ok && step != "" {
			l.complain(nearest(step, sorted(c.Plugins)), "unknown plugin "+quote(step), l.item(i, at("steps")...)...)
		}
	}
	if p.Retry.Max < p.Retry.Initial {
		l.complain("", fmt.Sprintf("%s is less than retry.initial, %s", span(p.Retry.Max), span(p.Retry.Initial)), at("retry", "max")...)
	}
	if p.Commit == "batch" {
		l.batch(c, p, at)
	}
	if p.Partitions > 1 {
		l.partitions(p, at("partitions"))
	}
	if p.Was != "" {
		l.was(c, p, at("was"))
	}
	l.inputs(c, p)
	l.deadLetter(c, p)
}

// batch checks what only `commit: each` has, and tells where exactly once ends.
func (l *loader) batch(c *Config, p *Pipeline, at func(...string) []string) {
	if p.Order != "none" {
		l.complain("", fmt.Sprintf("commit: batch keeps the stream's order but for messages that are tried again; order: %s needs commit: each", p.Order), at("order")...)
	}
	for _, name := range c.Keeps(p) {
		c.Warnings = append(c.Warnings, l.index.problem(fmt.Sprintf("exactly once holds for the outputs alone: what the plugin %q stores in kv may be stored more often than once (allow.kv)", name), "", at("commit")))
	}
}

// Keeps lists the plugins of a pipeline that store something in kv.
func (c *Config) Keeps(p *Pipeline) []string {
	var names []string
	for _, step := range p.Steps {
		if pl := c.Plugins[step]; pl != nil && len(pl.Allow.KV) > 0 && !slices.Contains(names, step) {
			names = append(names, step)
		}
	}
	return names
}

func (l *loader) was(c *Config, p *Pipeline, path []string) {
	if err := pipelineName(p.Was); err != nil {
		l.complain("", err.Error(), path...)
		return
	}
	if _, ok := c.Pipelines[p.Was]; ok {
		l.complain("", fmt.Sprintf("the pipeline %q still exists; one consumer cannot serve two pipelines", p.Was), path...)
		return
	}
	for _, other := range sorted(c.Pipelines) {
		if other < p.Name && c.Pipelines[other].Was == p.Was {
			l.complain("", fmt.Sprintf("pipelines %q and %q were both %q", other, p.Name, p.Was), path...)
		}
	}
}

// item is the path of a list's item, or of the list when one text stands for it.
func (l *loader) item(i int, list ...string) []string {
	if l.index.lists[join(list)] {
		return child(list, strconv.Itoa(i))
	}
	return list
}

// partitions keep the order of each subject, so there must be several in one
// filter: the server splits by that.
func (l *loader) partitions(p *Pipeline, path []string) {
	switch {
	case p.Commit == "batch":
		l.complain("", "needs commit: each", path...)
	case p.Order != OrderSubject:
		l.complain("", fmt.Sprintf("needs order: subject, by which the input is split; without an order all processes share the work anyway, and order: %s cannot be split", p.Order), path...)
	case len(p.From) > 1 || len(p.From) == 1 && subject.Literal(p.From[0]):
		l.complain("", "needs one filter with a wildcard in from: the input is split by the subjects that it matches", path...)
	}
}
