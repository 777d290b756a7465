package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mqrun/mqrun/config"
)

// The states of a pipeline.
const (
	StateRunning = "running"
	StateBlocked = "blocked" // a publish is refused; nothing more is pulled
	StateLost    = "lost"    // an input's consumer does not answer
	StateBreaker = "breaker" // its plugins kept failing; it tries one message now and then
	StateStopped = "stopped"

	// StateStandby and the next two are of ordered pipelines.
	StateStandby    = "standby"    // another process runs it
	StateRecovering = "recovering" // what was given out before must come back before anything begins
	StateWaiting    = "waiting"    // too much waits behind keys whose first message is tried again; nothing more is pulled
)

// Status is a snapshot of one pipeline. Counts are of this process since its
// start.
type Status struct {
	Name     string `json:"name"`
	Key      string `json:"key"` // the name under which the server knows it: of a renamed one its first
	State    string `json:"state"`
	Why      string `json:"why,omitempty"` // of a state other than running
	InFlight int    `json:"in_flight"`
	Held     int    `json:"held,omitempty"` // of them, behind or at the head of a key that is tried again
	Handled  int64  `json:"handled"`        // handler walks that ended
	Acked    int64  `json:"acked"`          // with their outputs, if any; dead letters are counted apart
	Filtered int64  `json:"filtered"`
	Retried  int64  `json:"retried"`
	Dead     int64  `json:"dead"`
	Outputs  int64  `json:"outputs"`
	// Trusted are the plugins that run without the meter (limits.meter: off).
	Trusted []string `json:"trusted,omitempty"`
	Parked  int      `json:"parked,omitempty"` // with commit: batch, messages that wait for their next attempt
	// DeadBy is Dead by reason.
	DeadBy   map[string]int64 `json:"dead_by_reason,omitempty"`
	LateAcks int64            `json:"late_acks"` // settled after ack_wait had passed: somebody else may have handled the message too
	Refused  int64            `json:"publish_refused"`
	// Mended counts consumers made again and inputs that became others; Skipped
	// messages that came again with that and were settled before.
	Mended  int64 `json:"mended,omitempty"`
	Skipped int64 `json:"skipped,omitempty"`
	// Seconds is how long the walks through the steps took.
	Seconds Histogram `json:"-"`
}

// Ready reports whether the pipeline takes messages, or would as soon as the
// process that runs it goes.
func (s Status) Ready() bool { return s.State == StateRunning || s.State == StateStandby }

// Status is a snapshot of all pipelines, by name. A configured one that could
// not be started is there as stopped.
func (m *Manager) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Status
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Pipelines)) {
		s := Status{Name: name, Key: m.cfg.Pipelines[name].Key(), State: StateStopped, Why: "it could not be started again; see the log"}
		if p := m.pipelines[name]; p != nil {
			s = p.status()
		}
		s.Trusted = trusted(m.cfg, m.cfg.Pipelines[name])
		all = append(all, s)
	}
	return all
}

func trusted(c *config.Config, p *config.Pipeline) (names []string) {
	for _, name := range p.Steps {
		if plugin := c.Plugins[name]; plugin != nil && !plugin.Limits.Meter && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Generation counts the configurations applied, from 1.
func (m *Manager) Generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

func statusOf(w *walker, c *counts) Status {
	filtered := c.filtered.Load() // first: it must never be more than acked
	return Status{
		Acked: c.acked.Load(), Filtered: filtered,
		DeadBy: c.deadBy.snapshot(), Seconds: w.seconds.snapshot(),
		Name: w.name, Key: w.key, State: StateRunning,
		Handled: c.handled.Load(), Retried: c.naked.Load(),
		Dead: c.dead.Load(), Outputs: c.outputs.Load(), LateAcks: c.lateAcks.Load(), Refused: c.publishRefused.Load(),
		Mended: c.mended.Load(), Skipped: c.skipped.Load(),
	}
}

func (p *pipeline) status() Status {
	s := statusOf(p.walker, &p.counts)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.InFlight = p.inFlight
	switch {
	case len(p.lost) > 0:
		s.State = StateLost
		s.Why = strings.Join(slices.Sorted(maps.Values(p.lost)), "; ")
	case p.stuck > 0:
		s.State, s.Why = StateBlocked, p.why
	case p.missing(p.now()) != "":
		s.State, s.Why = StateBlocked, p.missing(p.now())
	case p.tripped() != "":
		s.State, s.Why = StateBreaker, p.tripped()
	case p.lanes != nil:
		p.orderStatus(&s)
	}
	return s
}

// orderStatus is what an ordered pipeline has to say. p.mu is held.
func (p *pipeline) orderStatus(s *Status) {
	s.Held = p.lanes.behind()
	if !p.active {
		s.State = StateStandby
		switch {
		case p.standbyErr != nil:
			s.State, s.Why = StateLost, p.standbyErr.Error()
		case p.holder != "":
			s.Why = "runs in " + p.holder
		}
		return
	}
	for _, src := range p.sources {
		if b := src.back; b != nil {
			s.State, s.Why = StateRecovering, fmt.Sprintf("%d messages of %s that were given out before are not back yet; nothing begins before, or before %s", b.want, src.stream, b.due.UTC().Format(time.TimeOnly))
			return
		}
	}
	if p.crowded() {
		s.State, s.Why = StateWaiting, p.heldWhy(p.now())
	}
}
