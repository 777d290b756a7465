package main

import (
	"context"
	"sync/atomic"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
)

// live is the manager as the web and our own commands see it: there before it
// is, not ready while the cluster has no quorum, and not once it stops.
type live struct {
	manager  atomic.Pointer[pipeline.Manager]
	queue    atomic.Pointer[mq.EmbeddedNATS]
	waiting  atomic.Value // string
	stopping atomic.Bool
}

func (l *live) open(q *mq.EmbeddedNATS, m *pipeline.Manager) {
	l.queue.Store(q)
	l.manager.Store(m)
}

func (l *live) waits(why string) { l.waiting.Store(why) }

// Waiting is what the start waits for, or "".
func (l *live) Waiting() string {
	why, _ := l.waiting.Load().(string)
	return why
}

// Apply is the manager's.
func (l *live) Apply(ctx context.Context, cfg *config.Config) (pipeline.Plan, error) {
	return l.manager.Load().Apply(ctx, cfg)
}

// Generation is 0 until the manager has applied one.
func (l *live) Generation() uint64 {
	if m := l.manager.Load(); m != nil {
		return m.Generation()
	}
	return 0
}

// Rollouts are the manager's.
func (l *live) Rollouts() []pipeline.Rollout {
	if m := l.manager.Load(); m != nil {
		return m.Rollouts()
	}
	return nil
}

// Pending is the manager's.
func (l *live) Pending(ctx context.Context) map[string]uint64 {
	if m := l.manager.Load(); m != nil {
		return m.Pending(ctx)
	}
	return nil
}

// Status is the manager's, but blocked without a quorum, and stopped while
// draining.
func (l *live) Status() []pipeline.Status {
	m := l.manager.Load()
	if m == nil {
		return nil
	}
	all := m.Status()
	why := l.queue.Load().Quorum()
	for i := range all {
		switch {
		case l.stopping.Load():
			all[i].State, all[i].Why = pipeline.StateStopped, "mqrun is stopping"
		case why != "":
			all[i].State, all[i].Why = pipeline.StateBlocked, why
		}
	}
	return all
}
