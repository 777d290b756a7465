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
	Generation uint64   `json:"generation"`
	Keep       []string `json:"keep,omitempty"`          // not touched
	Start      []string `json:"start,omitempty"`         // new
	Stop       []string `json:"stop,omitempty"`          // removed; the durable stays
	Swap       []string `json:"swap,omitempty"`          // other steps or settings under the same consumer
	Restart    []string `json:"restart,omitempty"`       // another consumer or window: drained, then started
	Restarting string   `json:"needs_restart,omitempty"` // what only a new process can change
}

// groups are the plan's names by what happens to them.
func (p Plan) groups() []struct {
	word  string
	names []string
} {
	return []struct {
		word  string
		names []string
	}{{"keep", p.Keep}, {"start", p.Start}, {"stop", p.Stop}, {"swap", p.Swap}, {"restart", p.Restart}}
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

// Rows is the plan as a table: what happens, and to which pipelines.
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

// Changed reports whether any pipeline is touched.
func (p Plan) Changed() bool {
	return len(p.Start)+len(p.Stop)+len(p.Swap)+len(p.Restart) > 0
}

// diff compares two configurations by content. sameSteps tells whether a
// pipeline's plugins are the very ones that run now.
func diff(old, next *config.Config, sameSteps func(*config.Pipeline) bool) Plan {
	var p Plan
	for _, name := range slices.Sorted(maps.Keys(next.Pipelines)) {
		was, is := old.Pipelines[name], next.Pipelines[name]
		switch {
		case was == nil:
			p.Start = append(p.Start, name)
		case was.Hash() == is.Hash() && sameSteps(is):
			p.Keep = append(p.Keep, name)
		case sameConsumer(was, is):
			p.Swap = append(p.Swap, name)
		default:
			p.Restart = append(p.Restart, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Pipelines)) {
		if next.Pipelines[name] == nil {
			p.Stop = append(p.Stop, name)
		}
	}
	var keys []string
	if !reflect.DeepEqual(old.Server, next.Server) {
		keys = append(keys, "server")
	}
	if !reflect.DeepEqual(old.NATS, next.NATS) {
		keys = append(keys, "nats")
	}
	if !reflect.DeepEqual(old.Web, next.Web) {
		keys = append(keys, "web")
	}
	if !reflect.DeepEqual(old.Host, next.Host) {
		keys = append(keys, "host")
	}
	p.Restarting = strings.Join(keys, ", ")
	return p
}

// sameConsumer reports whether a pipeline can go on with its consumer and
// slots: only what the chain carries has changed.
func sameConsumer(a, b *config.Pipeline) bool {
	return slices.Equal(a.From, b.From) && a.AckWait == b.AckWait && a.MaxInFlight == b.MaxInFlight &&
		a.Order == b.Order && a.Commit == b.Commit && a.Partitions == b.Partitions && a.Start == b.Start
}

// startProblems refuses what the server cannot do: a durable starts where it
// was told to when it was made.
func startProblems(old, next *config.Config) config.Problems {
	var ps config.Problems
	for name, is := range next.Pipelines {
		if was := old.Pipelines[name]; was != nil && was.Start != is.Start {
			ps = append(ps, next.Problem(fmt.Sprintf("start cannot change while the consumer %s is there: rename the pipeline, or remove the consumer and restart", durable(name)), "", "pipelines", name, "start"))
		}
	}
	return ps
}
