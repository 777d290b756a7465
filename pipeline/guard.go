package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/mqrun/mqrun/config"
)

// modules are the plugins of a generation: those that handle messages, and of
// those on trial the new ones.
type modules struct {
	plugins set
	trials  map[string]*trial
}

// all are the plugins that are loaded, by name.
func (m modules) all() map[string][]*plugin {
	all := map[string][]*plugin{}
	for name, p := range m.plugins {
		all[name] = append(all[name], p)
	}
	for name, t := range m.trials {
		all[name] = append(all[name], t.next)
	}
	return all
}

func (m modules) same(o modules) bool {
	return maps.Equal(m.plugins, o.plugins) && maps.Equal(m.trials, o.trials)
}

// close closes those that the others are not.
func (m modules) close(ctx context.Context, keep modules) error {
	kept := keep.all()
	trying := set{}
	for name, t := range m.trials {
		trying[name] = t.next
	}
	return errors.Join(closePlugins(ctx, m.plugins, kept), closePlugins(ctx, trying, kept))
}

// onTrial decides which of the loaded plugins take over at once, and which have
// to prove themselves beside the ones that run.
func (m modules) onTrial(cfg *config.Config, loaded set, now time.Time) modules {
	next := modules{plugins: set{}, trials: map[string]*trial{}}
	for name, p := range loaded {
		old, t, rules := m.plugins[name], m.trials[name], cfg.Plugins[name].Rollout
		switch {
		case old == nil || old.digest == p.digest || old == p || !rules.On:
			next.plugins[name] = p
		case t != nil && t.next == p:
			t.mu.Lock()
			t.rules = rules
			t.mu.Unlock()
			next.plugins[name], next.trials[name] = old, t
		default:
			next.plugins[name] = old
			next.trials[name] = &trial{plugin: name, old: old, next: p, begun: now, rules: rules}
		}
	}
	return next
}

// chain is a pipeline's steps, with a canary beside it when one is on trial.
func (m modules) chain(c *config.Pipeline, generation uint64, deny []string) *chain {
	main := chainFor(c, generation, m.plugins, deny)
	with := maps.Clone(m.plugins)
	var trials []*trial
	for _, name := range slices.Compact(slices.Sorted(slices.Values(c.Steps))) {
		if t := m.trials[name]; t != nil {
			with[name] = t.next
			trials = append(trials, t)
		}
	}
	if trials == nil {
		return main
	}
	return main.beside(chainFor(c, generation, with, deny), trials)
}

// guard ends the trials whose time has come.
func (m *Manager) guard(now time.Time) {
	m.mu.Lock()
	trials := slices.Collect(maps.Values(m.modules.trials))
	m.mu.Unlock()
	for _, t := range trials {
		if state := t.judge(now); state != "" {
			m.keeper.Go(func() { m.conclude(t, state) })
		}
	}
}

// conclude gives all messages to the new module, or all back to the old one.
func (m *Manager) conclude(t *trial, state string) {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	if m.closed || m.modules.trials[t.plugin] != t {
		m.mu.Unlock()
		return
	}
	next := modules{plugins: maps.Clone(m.modules.plugins), trials: maps.Clone(m.modules.trials)}
	delete(next.trials, t.plugin)
	if state == RolloutTaken {
		next.plugins[t.plugin] = t.next
	} else {
		t.old.rolledBack, t.old.held = t.next.digest, true
	}
	was := m.modules
	m.modules = next
	var old []*chain
	for name, c := range m.cfg.Pipelines {
		if e := m.pipelines[name]; e != nil && slices.Contains(c.Steps, t.plugin) {
			old = append(old, e.swap(next.chain(c, m.generation, m.deny)))
		}
	}
	r := t.report(state)
	m.rollouts[t.plugin] = r
	m.mu.Unlock()
	now := make(chan struct{})
	close(now)
	m.retire(was, next, old, now)
	log := m.o.Logger.With("plugin", r.Plugin, "from", r.From, "to", r.To, "old", r.Old, "new", r.New)
	if state == RolloutTaken {
		log.Info("rollout: the new module takes all messages")
	} else {
		log.Error("rollout: the new module is rolled back and not tried again until its file changes", "failed", r.Failed)
	}
	if m.o.Concluded != nil {
		m.o.Concluded(r)
	}
}

// Rollouts are those that run, and how the last one of each other plugin ended,
// by name.
func (m *Manager) Rollouts() []Rollout {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.rollouts)
	for name, t := range m.modules.trials {
		all[name] = t.report(RolloutTrying)
	}
	var list []Rollout
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}
