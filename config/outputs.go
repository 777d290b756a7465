package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mqrun/mqrun/subject"
)

// allow checks what a plugin may publish, and tells of one that is trusted.
func (l *loader) allow(c *Config, p *Plugin) {
	if !p.Limits.Meter {
		c.Warnings = append(c.Warnings, l.index.problem("off trusts the plugin: if it is hostile, it can stop mqrun and all that runs in it", "", []string{"plugins", p.Name, "limits", "meter"}))
	}
	for i, s := range p.Allow.Publish {
		path := l.item(i, "plugins", p.Name, "allow", "publish")
		l.overlaps(p.Allow.Publish[:i], s, path)
		l.whole(c, s, path)
	}
}

// whole complains when a declared stream holds only a part of what a filter
// matches: the rest would need a stream that overlaps it.
func (l *loader) whole(c *Config, filter string, path []string) {
	for _, name := range sorted(c.Streams) {
		if s := c.Streams[name]; s.holds(filter) && !s.covers(filter) {
			l.complain("", fmt.Sprintf("%s reaches beyond the stream %q, which holds only a part of it; narrow one or widen the other", quote(filter), name), path...)
		}
	}
}

// outputs checks that every pipeline's results have a stream of their own.
func (l *loader) outputs(c *Config) {
	names := sorted(c.Pipelines)
	for i, name := range names {
		p := c.Pipelines[name]
		l.whole(c, p.To, []string{"pipelines", name, "to"})
		mine := c.Publishes(name)
		for j, a := range mine {
			for _, b := range mine[:j] {
				if subject.Overlap(a, b) {
					l.complain("", fmt.Sprintf("%s and %s overlap, so one stream cannot hold both; name the subjects one by one", quote(b), quote(a)), c.publisher(l, name, a)...)
				}
			}
			for _, stream := range sorted(c.Streams) {
				s := c.Streams[stream]
				if from := slices.IndexFunc(p.From, s.holds); from >= 0 && s.holds(a) {
					l.complain("", fmt.Sprintf("the stream %q holds %s and what the pipeline reads, %s; give its results a stream of their own in streams:", stream, quote(a), quote(p.From[from])), c.publisher(l, name, a)...)
				}
			}
			for _, other := range names[:i] {
				for _, b := range c.Publishes(other) {
					if subject.Overlap(a, b) && !c.together(a, b) {
						l.complain("", fmt.Sprintf("the pipelines %q and %q may both publish %s; declare one stream that holds it in streams:", other, name, both(a, b)), c.publisher(l, name, a)...)
					}
				}
			}
		}
	}
}

// together reports whether a declared stream holds both.
func (c *Config) together(a, b string) bool {
	for _, s := range c.Streams {
		if s.covers(a) && s.covers(b) {
			return true
		}
	}
	return false
}

func both(a, b string) string {
	switch {
	case subject.Covers(a, b):
		return quote(b)
	case subject.Covers(b, a):
		return quote(a)
	}
	return "what is in " + quote(a) + " and " + quote(b)
}

// publisher is the path of the key by which a pipeline publishes s.
func (c *Config) publisher(l *loader, pipeline, s string) []string {
	p := c.Pipelines[pipeline]
	if p.To == s {
		return []string{"pipelines", pipeline, "to"}
	}
	for _, step := range p.Steps {
		if pl := c.Plugins[step]; pl != nil {
			if i := slices.Index(pl.Allow.Publish, s); i >= 0 {
				return l.item(i, "plugins", step, "allow", "publish")
			}
		}
	}
	return []string{"pipelines", pipeline}
}

// loops finds pipelines whose results or dead letters come back to them, each
// ring of pipelines once, by its shortest way round.
func (l *loader) loops(c *Config) {
	names := sorted(c.Pipelines)
	next := map[string][]string{}
	for _, a := range names {
		out := c.Publishes(a)
		// A dead letter in the pipeline's own from was reported as just that.
		dead := c.Pipelines[a].DeadLetter
		for _, b := range names {
			if meets(out, c.Pipelines[b].From) || a != b && dead != DeadLetterNone && meets([]string{dead}, c.Pipelines[b].From) {
				next[a] = append(next[a], b)
			}
		}
	}
	known := map[string]bool{}
	for _, start := range names {
		ring := way(next, start)
		if ring == nil {
			continue
		}
		members := slices.Clone(ring)
		slices.Sort(members)
		if id := join(members); !known[id] {
			known[id] = true
			l.complain("", "what it publishes comes back to it: "+strings.Join(append(ring, start), " -> "), "pipelines", start, "from")
		}
	}
}

func meets(out, from []string) bool {
	for _, a := range out {
		for _, b := range from {
			if a != "" && b != "" && subject.Overlap(a, b) {
				return true
			}
		}
	}
	return false
}

// way is the shortest way from start back to it, without the end, or nil.
func way(next map[string][]string, start string) []string {
	before := map[string]string{}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, n := range next[at] {
			if n == start {
				var ring []string
				for ; at != start; at = before[at] {
					ring = append(ring, at)
				}
				ring = append(ring, start)
				slices.Reverse(ring)
				return ring
			}
			if _, seen := before[n]; !seen {
				before[n] = at
				queue = append(queue, n)
			}
		}
	}
	return nil
}
