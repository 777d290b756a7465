package pipeline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

// reloadDrain is how long a pipeline that is replaced may begin what it holds,
// and then how long it may take to settle it once the handlers have ended.
const reloadDrain = 30 * time.Second

// generation is a configuration that is being prepared.
type generation struct {
	m       *Manager
	number  uint64
	cfg     *config.Config
	plan    Plan
	loaded  set
	modules modules
	layout  layout
	started map[string]engine
}

// Apply makes cfg the running generation: everything new is prepared first,
// then swapped in, then the old is drained. When anything cannot be prepared
// nothing changes, and the error is config.Problems or the server's. A plan with
// an error was taken, but for the pipelines that the error names: Apply again
// starts those.
//
// When ctx ends while the old is drained, Apply returns and the draining goes
// on; Drain waits for it.
func (m *Manager) Apply(ctx context.Context, cfg *config.Config) (Plan, error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.closed {
		return Plan{}, ErrClosed
	}
	g := &generation{m: m, number: m.generation + 1, cfg: cfg, started: map[string]engine{}}
	err := g.prepare(ctx)
	if err == nil && g.number > 1 && !g.plan.Changed() && g.modules.same(m.modules) {
		g.take()
		return g.plan, nil
	}
	if err == nil {
		err = g.open(ctx)
	}
	if err != nil {
		err = mq.Explain(m.broker.js.Conn(), err)
		for _, p := range g.started {
			p.close()
		}
		return Plan{}, errors.Join(err, closePlugins(ctx, g.loaded, m.modules.all()))
	}
	was, before := m.modules, m.cfg
	engines := g.take()
	var old []*chain
	for _, name := range g.plan.Swap {
		old = append(old, engines[name].swap(g.chain(name)))
	}
	for _, p := range g.started {
		p.begin()
	}
	inputs := map[string][]input{}
	for name, in := range g.layout.inputs {
		inputs[cfg.Pipelines[name].Key()] = in
	}
	m.rescuer.watch(inputs)
	replaced, failed := g.replace(ctx, before, engines)
	m.retire(was, g.modules, old, replaced)
	select {
	case <-replaced:
		close(failed)
	case <-ctx.Done():
		return g.plan, ctx.Err()
	}
	for f := range failed {
		err = errors.Join(err, f)
	}
	return g.plan, err
}

// prepare finds out what changes, and loads what is new.
func (g *generation) prepare(ctx context.Context) error {
	m := g.m
	if ps := startProblems(m.cfg, g.cfg); ps != nil {
		return ps
	}
	if !sameSettings(m.cfg, g.cfg) { // before anything starts: a plugin may ask at once
		if ps := m.kv.ensure(ctx, g.cfg, m.o.MaxBytes); ps != nil {
			return ps
		}
	}
	loaded, problems := loadPlugins(ctx, m.load, g.cfg, m.modules.all())
	if problems != nil {
		return problems
	}
	g.loaded = loaded
	g.modules = m.modules.onTrial(g.cfg, loaded, time.Now())
	g.plan = diff(m.cfg, g.cfg, func(p *config.Pipeline) bool {
		return !slices.ContainsFunc(p.Steps, func(s string) bool {
			return g.modules.plugins[s] != m.modules.plugins[s] || g.modules.trials[s] != m.modules.trials[s]
		})
	}, func(name string) bool { return m.pipelines[name] != nil })
	g.plan.Generation = g.number
	for name, p := range loaded {
		switch {
		case g.modules.trials[name] != nil && m.modules.trials[name] != g.modules.trials[name]:
			g.plan.Rollout = append(g.plan.Rollout, name)
		case p.held:
			g.plan.Held = append(g.plan.Held, name)
		}
	}
	slices.Sort(g.plan.Rollout)
	slices.Sort(g.plan.Held)
	return nil
}

// open makes the streams and what can be made ready beside what runs.
func (g *generation) open(ctx context.Context) (err error) {
	if g.layout, err = g.m.layOut(ctx, g.cfg); err != nil {
		return err
	}
	if err := g.m.checkRights(ctx, g.cfg, g.layout); err != nil {
		return err
	}
	g.plan.widen(g.m.pipelines, g.layout.inputs)
	for _, name := range g.plan.Start {
		if g.started[name], err = g.openEngine(ctx, name); err != nil {
			delete(g.started, name)
			return err
		}
	}
	return nil
}

func (g *generation) chain(name string) *chain {
	return g.modules.chain(g.cfg.Pipelines[name], g.number, g.layout.deny)
}

func (g *generation) openEngine(ctx context.Context, name string) (engine, error) {
	return openEngine(ctx, g.m.broker, g.chain(name), g.layout.inputs[name], g.layout.outputs[name], g.m.o.Logger)
}

// take makes g the running generation. It returns the engines that ran before.
func (g *generation) take() map[string]engine {
	m := g.m
	m.mu.Lock()
	defer m.mu.Unlock()
	was, next := m.pipelines, maps.Clone(m.pipelines)
	for _, name := range slices.Concat(g.plan.Stop, g.plan.Restart, slices.Collect(maps.Values(g.plan.Renamed))) {
		delete(next, name)
	}
	maps.Copy(next, g.started)
	m.cfg, m.generation, m.modules, m.pipelines = g.cfg, g.number, g.modules, next
	if g.layout.streams != nil {
		m.streams, m.deny = g.layout.streams, g.layout.deny
	}
	for name, ps := range g.modules.all() {
		for _, p := range ps {
			if p.loaded != nil {
				p.loaded.SetWorkers(workers(g.cfg, name))
			}
		}
	}
	return was
}

// replace drains removed and changed pipelines side by side and starts the
// changed ones again. done is closed when that has ended.
func (g *generation) replace(ctx context.Context, before *config.Config, was map[string]engine) (done chan struct{}, failed chan error) {
	names := slices.Concat(g.plan.Stop, g.plan.Restart)
	done, failed = make(chan struct{}), make(chan error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		old := cmp.Or(g.plan.Renamed[name], name)
		all.Go(func() {
			if e := was[old]; e != nil {
				g.m.leave(e, before, old)
			}
			if i >= len(g.plan.Stop) {
				failed <- g.again(ctx, name)
			}
		})
	}
	g.m.leaving.Go(func() {
		all.Wait()
		close(done)
	})
	return done, failed
}

// leave drains an engine. What no worker has begun after a while is given back;
// what runs may take as long as its handlers may.
func (m *Manager) leave(e engine, cfg *config.Config, name string) {
	limit := 2 * reloadDrain
	for _, step := range cfg.Pipelines[name].Steps {
		limit += cfg.Plugins[step].Limits.Timeout
	}
	ctx, cancel := context.WithTimeout(m.patient, limit)
	defer cancel()
	if err := e.drain(ctx, reloadDrain); err != nil {
		m.o.Logger.Warn("pipeline drained in part", "pipeline", name, "error", err)
	}
}

// again starts a pipeline whose engine before is drained.
func (g *generation) again(ctx context.Context, name string) error {
	m := g.m
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed || ctx.Err() != nil {
		return ErrClosed
	}
	p, err := g.openEngine(ctx, name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.generation != g.number {
		p.close()
		return ErrClosed
	}
	m.pipelines[name] = p
	p.begin()
	return nil
}

// retire closes plugins that no chain uses any more, once the messages that
// began on them have ended. Their handlers have limits of their own, and their
// messages are kept alive meanwhile.
func (m *Manager) retire(old, next modules, chains []*chain, replaced <-chan struct{}) {
	m.keeper.Go(func() {
		for _, c := range chains {
			<-c.idle
			if c.canary != nil {
				<-c.canary.idle
			}
		}
		<-replaced
		ctx, cancel := context.WithTimeout(context.Background(), reloadDrain)
		defer cancel()
		if err := old.close(ctx, next); err != nil {
			m.o.Logger.Warn("close old plugins", "error", err)
		}
	})
}

// openEngine makes a pipeline ready to begin.
func openEngine(ctx context.Context, b *broker, c *chain, inputs []input, out string, log *slog.Logger) (engine, error) {
	if c.cfg.Commit == "batch" {
		return openBatch(ctx, b, c, inputs[0], out, log)
	}
	if len(inputs) == 1 && inputs[0].parts > 0 {
		return openParted(ctx, b, c, inputs[0], log)
	}
	return openPipeline(ctx, b, c, inputs, nil, log)
}
