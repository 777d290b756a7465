package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Plugin is a loaded module with its pool of instances. Safe for concurrent use.
type Plugin struct {
	runtime  *Runtime
	engine   *engine
	facts    *Facts
	settings Settings
	config   []byte   // what config("") gives
	environ  []string // what the guest sees as its environment
	least    int32    // instructions that a tick has to give
	pool     *pool

	born time.Time // start of the monotonic clock

	closing sync.Once
	drained chan struct{} // closed once the engine is
	err     error         // of closing the engine; read after drained
}

func newPlugin(r *Runtime, e *engine, f *Facts, s Settings) *Plugin {
	p := &Plugin{runtime: r, engine: e, facts: f, settings: s, config: s.ConfigJSON, born: time.Now(), drained: make(chan struct{})}
	if p.config == nil {
		m := s.Config
		if m == nil {
			m = map[string]string{}
		}
		p.config, _ = json.Marshal(m) // a map of strings always marshals
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		p.environ = append(p.environ, name+"="+s.Env[name])
	}
	p.pool = newPool(p.instantiate, s.Workers, s.Isolation != "message", p.drain)
	return p
}

// Name of the plugin.
func (p *Plugin) Name() string { return p.settings.Name }

// Digest is the sha256 of the original file, in hex.
func (p *Plugin) Digest() string { return p.facts.SHA256 }

// Trusted reports that it runs on wazero's own switch, which a hostile guest gets around.
func (p *Plugin) Trusted() bool { return p.settings.Trusted }

// SetWorkers changes how many instances may be alive at once. Running calls are
// left alone; waiting ones start as soon as there is room. n < 1 counts as 1.
func (p *Plugin) SetWorkers(n int) { p.pool.setMax(max(n, 1)) }

// Handle gives m to an instance and fills res. It blocks while all instances
// are out. It returns nil and the guest's code in res, a *CallError when there
// was none (the instance is gone), ctx.Err() when ctx ended first, or ErrClosed.
func (p *Plugin) Handle(ctx context.Context, m *Message, res *Result) error {
	res.Reset()
	if err := ctx.Err(); err != nil {
		return err
	}
	in := res.home
	if in == nil || in.plugin != p || !in.claim() {
		var err error
		if in, err = p.take(ctx, m); err != nil {
			return err
		}
	}
	err := in.handle(ctx, m, res)
	switch {
	case err != nil:
		res.discardOutputs()
		res.home = nil
		p.pool.discard(in)
	case res.home == in && p.pool.reuse && !in.spent():
		p.pool.park(in)
	default:
		res.home = in
		p.pool.put(in)
	}
	return err
}

// take gets an instance out of the pool.
func (p *Plugin) take(ctx context.Context, m *Message) (*instance, error) {
	in, err := p.pool.get(ctx, m.Pipeline)
	if err == nil {
		return in, nil
	}
	var ce *CallError
	if errors.As(err, &ce) {
		err = &CallError{Reason: ce.Reason, Text: fmt.Sprintf("%s: start a new instance: %s", prefix(p.settings.Name, m), ce.Text), Guest: ce.Guest, Trace: ce.Trace}
	}
	return in, err
}

func (r *Result) discardOutputs() {
	clear(r.Outputs)
	r.Outputs, r.data = r.Outputs[:0], r.data[:0]
}

// Close refuses new calls and waits for running ones. When ctx ends first they
// are stopped and what they hold is freed as soon as they are; Close then
// returns ctx.Err().
func (p *Plugin) Close(ctx context.Context) error {
	p.closing.Do(p.pool.close)
	select {
	case <-p.drained:
		return p.err
	case <-ctx.Done():
		p.pool.kill()
		return ctx.Err()
	}
}

// drain runs once, when the pool is closed and its last instance is back.
func (p *Plugin) drain() {
	// The caller's context may be over by now; closing must not be.
	p.err = p.engine.close(context.Background())
	p.runtime.forget(p)
	close(p.drained)
}
