package pipeline

import (
	"maps"
	"slices"
	"strings"
)

// The states of a pipeline.
const (
	StateRunning = "running"
	StateBlocked = "blocked" // a publish is refused; nothing more is pulled
	StateLost    = "lost"    // an input's consumer does not answer
	StateStopped = "stopped"
)

// Status is a snapshot of one pipeline. Counts are of this process since its
// start.
type Status struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Why      string `json:"why,omitempty"` // of a state other than running
	InFlight int    `json:"in_flight"`
	Handled  int64  `json:"handled"` // handler walks that ended
	Acked    int64  `json:"acked"`   // with their outputs, if any; dead letters are counted apart
	Filtered int64  `json:"filtered"`
	Retried  int64  `json:"retried"`
	Dead     int64  `json:"dead"`
	Outputs  int64  `json:"outputs"`
	Parked   int    `json:"parked,omitempty"` // with commit: batch, messages that wait for their next attempt
	LateAcks int64  `json:"late_acks"`        // settled after ack_wait had passed: somebody else may have handled the message too
	Refused  int64  `json:"publish_refused"`
}

// Ready reports whether the pipeline takes messages.
func (s Status) Ready() bool { return s.State == StateRunning }

// Status is a snapshot of all pipelines, by name. A configured one that could
// not be started is there as stopped.
func (m *Manager) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Status
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Pipelines)) {
		if p := m.pipelines[name]; p != nil {
			all = append(all, p.status())
		} else {
			all = append(all, Status{Name: name, State: StateStopped, Why: "it could not be started again; see the log"})
		}
	}
	return all
}

// Generation counts the configurations applied, from 1.
func (m *Manager) Generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

func statusOf(name string, c *counts) Status {
	return Status{
		Name: name, State: StateRunning,
		Handled: c.handled.Load(), Acked: c.acked.Load(), Filtered: c.filtered.Load(), Retried: c.naked.Load(),
		Dead: c.dead.Load(), Outputs: c.outputs.Load(), LateAcks: c.lateAcks.Load(), Refused: c.publishRefused.Load(),
	}
}

func (p *pipeline) status() Status {
	s := statusOf(p.name, &p.counts)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.InFlight = p.inFlight
	switch {
	case len(p.lost) > 0:
		s.State = StateLost
		s.Why = strings.Join(slices.Sorted(maps.Values(p.lost)), "; ")
	case p.stuck > 0:
		s.State, s.Why = StateBlocked, p.why
	}
	return s
}
