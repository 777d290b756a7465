package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

// Apply makes cfg the running generation: everything new is prepared first,
// then swapped in, then the old is drained. When anything cannot be prepared
// nothing changes, and the error is config.Problems or the server's.
func (m *Manager) Apply(ctx context.Context, cfg *config.Config) (Plan, error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.closed {
		return Plan{}, ErrClosed
	}
	old, generation := m.cfg, m.generation+1
	if ps := startProblems(old, cfg); ps != nil {
		return Plan{}, ps
	}
	if ps := m.kv.ensure(ctx, cfg, m.o.MaxBytes); ps != nil { // before anything starts: a plugin may ask at once
		return Plan{}, ps
	}
	plugins, problems := loadPlugins(ctx, m.load, cfg, m.plugins)
	if problems != nil {
		return Plan{}, problems
	}
	undo := func(started map[string]engine, err error) (Plan, error) {
		err = mq.Explain(m.broker.js.Conn(), err)
		for _, p := range started {
			p.close()
		}
		return Plan{}, errors.Join(err, closePlugins(ctx, plugins, m.plugins))
	}
	l, err := m.layOut(ctx, cfg)
	if err != nil {
		return undo(nil, err)
	}
	if err := m.checkRights(ctx, cfg, l); err != nil {
		return undo(nil, err)
	}
	plan := diff(old, cfg, func(p *config.Pipeline) bool {
		return !slices.ContainsFunc(p.Steps, func(s string) bool { return plugins[s] != m.plugins[s] })
	})
	started := map[string]engine{}
	chainOf := func(name string) *chain { return chainFor(cfg.Pipelines[name], generation, plugins, l.deny) }
	for _, name := range plan.Start {
		p, err := openEngine(ctx, m.broker, chainOf(name), l.inputs[name], l.outputs[name], m.o.Logger)
		if err != nil {
			return undo(started, err)
		}
		started[name] = p
	}

	// From here on the new generation is the running one.
	plan.Generation = generation
	m.mu.Lock()
	was, next := m.pipelines, maps.Clone(m.pipelines)
	gone := m.plugins
	for _, name := range append(slices.Clone(plan.Stop), plan.Restart...) {
		delete(next, name)
	}
	maps.Copy(next, started)
	m.cfg, m.generation, m.plugins, m.pipelines, m.streams = cfg, generation, plugins, next, l.streams
	m.mu.Unlock()
	for name, p := range plugins {
		if p.loaded != nil {
			p.loaded.SetWorkers(workers(cfg, name))
		}
	}
	var chains []*chain
	for _, name := range plan.Swap {
		chains = append(chains, was[name].swap(chainOf(name)))
	}
	for _, p := range started {
		p.begin()
	}
	m.rescuer.watch(l.inputs)
	err = m.replace(ctx, plan, was, chainOf, l)
	m.retire(gone, plugins, chains)
	return plan, err
}

// replace drains removed and changed pipelines side by side and starts the
// changed ones again.
func (m *Manager) replace(ctx context.Context, plan Plan, was map[string]engine, chainOf func(string) *chain, l layout) error {
	var wg sync.WaitGroup
	errs := make([]error, len(plan.Stop)+len(plan.Restart))
	for i, name := range append(slices.Clone(plan.Stop), plan.Restart...) {
		wg.Go(func() {
			drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadDrain)
			defer cancel()
			if err := was[name].drain(drain, false); err != nil {
				m.o.Logger.Warn("pipeline drained in part", "pipeline", name, "error", err)
			}
			if i < len(plan.Stop) {
				return
			}
			p, err := openEngine(ctx, m.broker, chainOf(name), l.inputs[name], l.outputs[name], m.o.Logger)
			if err != nil {
				errs[i] = err
				return
			}
			m.mu.Lock()
			m.pipelines[name] = p
			m.mu.Unlock()
			p.begin()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// retire closes plugins that no chain uses any more, once the messages that
// began on them have ended.
func (m *Manager) retire(old, next map[string]*plugin, chains []*chain) {
	m.keeper.Go(func() {
		for _, c := range chains {
			<-c.idle
		}
		ctx, cancel := context.WithTimeout(context.Background(), reloadDrain)
		defer cancel()
		if err := closePlugins(ctx, old, next); err != nil {
			m.o.Logger.Warn("close old plugins", "error", err)
		}
	})
}

// openEngine makes a pipeline ready to begin.
func openEngine(ctx context.Context, b *broker, c *chain, inputs []input, out string, log *slog.Logger) (engine, error) {
	if c.cfg.Commit == "batch" {
		return openBatch(ctx, b, c, inputs[0], out, log)
	}
	return openPipeline(ctx, b, c, inputs, log)
}
