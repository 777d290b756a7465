package pipeline

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/mqrun/mqrun/config"
)

// Plan is what a reload changes: names of pipelines, each sorted.
type Plan struct {
	Generation uint64            `json:"generation"`
	Keep       []string          `json:"keep,omitempty"`          // not touched
	Start      []string          `json:"start,omitempty"`         // new
	Stop       []string          `json:"stop,omitempty"`          // removed; the durable stays
	Swap       []string          `json:"swap,omitempty"`          // other steps or settings under the same consumer
	Restart    []string          `json:"restart,omitempty"`       // another consumer, window or name: drained, then started
	Renamed    map[string]string `json:"renamed,omitempty"`       // of them, what their names were before
	Streams    []string          `json:"streams,omitempty"`       // new, or with other limits
	Rollout    []string          `json:"rollout,omitempty"`       // plugins whose new module gets a share of the messages first
	Held       []string          `json:"held_back,omitempty"`     // plugins whose module was rolled back: the one before goes on
	Restarting string            `json:"needs_restart,omitempty"` // keys that only a new process can change
}

// planGroup is some names and what happens to them.
type planGroup struct {
	word  string
	names []string
}

func (p Plan) groups() []planGroup {
	restart := slices.Clone(p.Restart)
	for i, name := range restart {
		if was, ok := p.Renamed[name]; ok {
			restart[i] = name + " (was " + was + ")"
		}
	}
	return []planGroup{
		{"keep", p.Keep}, {"start", p.Start}, {"stop", p.Stop}, {"swap", p.Swap}, {"restart", restart},
		{"streams", p.Streams}, {"rollout", p.Rollout}, {"held back", p.Held},
	}
}

// String is the plan in one line, without what is kept.
func (p Plan) String() string {
	var parts []string
	for _, g := range p.groups()[1:] {
		if len(g.names) > 0 {
			parts = append(parts, g.word+" "+strings.Join(g.names, ", "))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "no change")
	}
	if p.Restarting != "" {
		parts = append(parts, p.Restarting+" needs a restart of mqrun")
	}
	return strings.Join(parts, "; ")
}

// Rows is the plan as a table: what happens, and to what.
func (p Plan) Rows() [][]string {
	var rows [][]string
	for _, g := range p.groups() {
		if len(g.names) > 0 {
			rows = append(rows, []string{g.word, strings.Join(g.names, ", ")})
		}
	}
	if p.Restarting != "" {
		rows = append(rows, []string{"needs a restart of mqrun", p.Restarting})
	}
	return rows
}

// Changed reports whether any pipeline or stream is touched.
func (p Plan) Changed() bool {
	return len(p.Start)+len(p.Stop)+len(p.Swap)+len(p.Restart)+len(p.Streams) > 0
}

// diff compares two configurations by content. sameSteps tells whether a
// pipeline's plugins are the very ones that run now, runs whether there is an
// engine: one that could not be started is started.
func diff(old, next *config.Config, sameSteps func(*config.Pipeline) bool, runs func(string) bool) Plan {
	var p Plan
	for _, name := range slices.Sorted(maps.Keys(next.Pipelines)) {
		was, is := old.Pipelines[name], next.Pipelines[name]
		before := sameKey(old, next, is)
		switch {
		case was == nil && before != "":
			p.Restart = append(p.Restart, name)
			if p.Renamed == nil {
				p.Renamed = map[string]string{}
			}
			p.Renamed[name] = before
		case was == nil || !runs(name):
			p.Start = append(p.Start, name)
		case was.Hash() == is.Hash() && sameSteps(is):
			p.Keep = append(p.Keep, name)
		case sameConsumer(was, is):
			p.Swap = append(p.Swap, name)
		default:
			p.Restart = append(p.Restart, name)
		}
	}
	renamed := slices.Collect(maps.Values(p.Renamed))
	for _, name := range slices.Sorted(maps.Keys(old.Pipelines)) {
		if next.Pipelines[name] == nil && !slices.Contains(renamed, name) {
			p.Stop = append(p.Stop, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.Streams)) {
		if was := old.Streams[name]; !reflect.DeepEqual(was, next.Streams[name]) {
			p.Streams = append(p.Streams, name)
		}
	}
	var keys []string
	for _, part := range []struct {
		name      string
		old, next any
	}{{"server", old.Server, next.Server}, {"nats", old.NATS, next.NATS}, {"web", old.Web, next.Web}, {"host", old.Host, next.Host}} {
		keys = append(keys, changedKeys(part.name, reflect.ValueOf(part.old), reflect.ValueOf(part.next))...)
	}
	p.Restarting = strings.Join(keys, ", ")
	return p
}

// changedKeys names the keys of a section that differ, as a file has them.
func changedKeys(section string, a, b reflect.Value) []string {
	var keys []string
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			keys = append(keys, section+"."+f.Tag.Get("koanf"))
		}
	}
	return keys
}

// sameKey is the pipeline of old that is gone and that next's pipeline p goes
// on for, or "".
func sameKey(old, next *config.Config, p *config.Pipeline) string {
	for name, was := range old.Pipelines {
		if next.Pipelines[name] == nil && was.Key() == p.Key() {
			return name
		}
	}
	return ""
}

// sameSettings reports whether all but the modules' content is as it was.
func sameSettings(old, next *config.Config) bool {
	p := func(a, b *config.Plugin) bool { return a.Hash() == b.Hash() }
	return maps.EqualFunc(old.Plugins, next.Plugins, p) && reflect.DeepEqual(old.Streams, next.Streams)
}

// sameConsumer reports whether a pipeline can go on with its consumer and
// slots: only what the chain carries has changed.
func sameConsumer(a, b *config.Pipeline) bool {
	return slices.Equal(a.From, b.From) && a.AckWait == b.AckWait && a.MaxInFlight == b.MaxInFlight &&
		a.Order == b.Order && a.Commit == b.Commit && a.Partitions == b.Partitions && a.Start == b.Start
}

// startProblems refuses what would lose or repeat messages: a durable starts
// where it was told to when it was made, and is found by its name.
func startProblems(old, next *config.Config) config.Problems {
	var ps config.Problems
	for _, name := range slices.Sorted(maps.Keys(next.Pipelines)) {
		is := next.Pipelines[name]
		was := old.Pipelines[name]
		if was == nil {
			was = old.Pipelines[sameKey(old, next, is)]
		}
		first := old.Pipelines[is.Was]
		switch {
		case was != nil && was.Key() != is.Key():
			ps = append(ps, next.Problem(fmt.Sprintf("was cannot change while the consumer %s is there: the pipeline would begin anew with another one; write was: %s", durable(was.Key()), was.Key()), "", "pipelines", name, "was"))
		case was != nil && was.Start != is.Start:
			ps = append(ps, next.Problem(fmt.Sprintf("start cannot change while the consumer %s is there: rename the pipeline, or remove the consumer and restart", durable(is.Key())), "", "pipelines", name, "start"))
		case was == nil && first != nil && first.Key() != is.Was:
			ps = append(ps, next.Problem(fmt.Sprintf("the pipeline %s goes on for %s; write was: %s", is.Was, first.Key(), first.Key()), first.Key(), "pipelines", name, "was"))
		}
	}
	return ps
}
