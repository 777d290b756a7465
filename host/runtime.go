package host

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Options of a Runtime.
type Options struct {
	// CacheDir keeps compiled modules between starts. It holds native code: it
	// is made with mode 0700, and one that is a symbolic link or open to others
	// is refused. "" = none.
	CacheDir string
	// Logger gets what guests print and log; nil = nothing is logged.
	Logger *slog.Logger
	// Running is how many guests may run at once, over all plugins; 0 =
	// GOMAXPROCS. Who comes too late waits; the pipeline that ran least goes
	// first. Time in line is not the call's.
	Running int
	// Memory bounds the linear memory of all guests together, in bytes; 0 = no
	// limit. At the limit idle instances go, then memory.grow gives -1 and a
	// new instance fails.
	Memory int64
}

// Settings of one plugin: a module plus a name and what it may do.
type Settings struct {
	Name       string
	File       string // for error texts
	Config     map[string]string
	ConfigJSON []byte // what config("") gives; made from Config when nil
	ABI        string // "", auto, mqrun_v1
	Export     string // not in this version
	Start      string // an export () -> () to call in place of _initialize, once per instance
	Args       []string
	Publish    []string // subjects or filters that emit may name; subject.Reserved ones never
	Buckets    []string // that the kv functions may name; a module that imports them needs one
	KV         KV       // where the buckets are
	Env        map[string]string
	Limits     Limits // a zero field takes its default
	// Trusted: not metered. wazero's own switch stops the guest, at the heads
	// of loops alone: a hostile guest can hold up the whole process.
	Trusted   bool
	bare      bool   // trusted, and without the switch: no limits at all, to measure what limits cost
	Isolation string // "" or pool; message = a fresh instance for every message
	Recycle   int    // messages before an instance is replaced; 0 = 100,000
	Workers   int    // most instances alive at once; 0 = GOMAXPROCS
}

// Runtime loads plugins. Safe for concurrent use.
type Runtime struct {
	cache   *diskCache
	logger  *slog.Logger
	compile chan struct{} // one at a time: the compiler takes a core and hundreds of MiB
	// compileLimit is how long that may take; see patience. Nothing can stop
	// wazero's compiler, whose time grows with the square of some sizes.
	compileLimit time.Duration
	gate         *gate
	budget       budget

	mu      sync.Mutex
	closed  bool
	plugins map[*Plugin]struct{}
}

// New opens the compile cache. The context is not kept.
func New(_ context.Context, o Options) (*Runtime, error) {
	cache, err := openCache(o.CacheDir)
	if err != nil {
		return nil, err
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	n := o.Running
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	r := &Runtime{cache: cache, logger: logger, compile: make(chan struct{}, 1), compileLimit: 3 * time.Minute, gate: newGate(n), plugins: map[*Plugin]struct{}{}}
	r.budget.limit, r.budget.reclaim = o.Memory, r.reclaim
	return r, nil
}

// reclaim closes idle instances until the budget has room for n bytes, those of
// the plugin with the most idle ones first.
func (r *Runtime) reclaim(n int64) {
	r.mu.Lock()
	ps := slices.Collect(maps.Keys(r.plugins))
	r.mu.Unlock()
	for len(ps) > 0 && r.budget.full(n) {
		fullest := slices.MaxFunc(ps, func(a, b *Plugin) int { return cmp.Compare(a.pool.idling(), b.pool.idling()) })
		if !fullest.pool.shed() {
			return
		}
	}
}

// Close closes every plugin that is still open, as Plugin.Close does.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	open := make([]*Plugin, 0, len(r.plugins))
	for p := range r.plugins {
		open = append(open, p)
	}
	r.mu.Unlock()
	var first error
	for _, p := range open {
		if err := p.Close(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Load checks, prepares and compiles a module, links it, and starts a first
// instance to prove that it can. Modules are compiled one at a time. The error
// names the file and says what to do about it.
func (r *Runtime) Load(ctx context.Context, wasm []byte, s Settings) (*Plugin, error) {
	s = s.orDefault()
	p, err := r.load(ctx, wasm, &s)
	if err != nil {
		return nil, fmt.Errorf("load plugin %q: %w", s.Name, err)
	}
	return p, nil
}

func (r *Runtime) load(ctx context.Context, wasm []byte, s *Settings) (*Plugin, error) {
	switch {
	case s.Export != "" && s.Export != ExportHandle:
		return nil, fmt.Errorf("plugins.%s.export is not in this version; export %s", s.Name, ExportHandle)
	case s.Isolation != "" && s.Isolation != "pool" && s.Isolation != "message":
		return nil, fmt.Errorf("plugins.%s.isolation is %q; it is pool or message", s.Name, s.Isolation)
	}
	// The cap comes first: nothing is parsed of a module that is too large.
	if size := int64(len(wasm)); size > s.Limits.Module {
		return nil, s.fits(&Facts{Name: s.File, Size: size})
	}
	facts, err := s.Inspect(wasm)
	if err != nil {
		return nil, err
	}
	prepared, least, err := prepare(wasm, s)
	if err != nil {
		return nil, fmt.Errorf("%s %w", s.File, err)
	}
	engine, err := r.build(ctx, prepared, s)
	if err != nil {
		return nil, err
	}
	p := newPlugin(r, engine, facts, *s)
	p.least = max(least, leastInterval)
	if err := p.pool.fill(ctx); err != nil {
		_ = p.Close(ctx)
		return nil, err
	}
	if !r.keep(p) {
		_ = p.Close(ctx)
		return nil, ErrClosed
	}
	return p, nil
}

// build compiles. When that takes too long, the compiler goes on by itself, and
// until it has ended nothing else is compiled.
func (r *Runtime) build(ctx context.Context, wasm []byte, s *Settings) (*engine, error) {
	limit := newPatience(r.compileLimit)
	defer limit.Stop()
	for turn := false; !turn; {
		select {
		case r.compile <- struct{}{}:
			turn = true
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			if !limit.over() {
				continue
			}
			return nil, fmt.Errorf("compile %s: another module is still being compiled after %v; fix that one, or start mqrun again", s.File, r.compileLimit)
		}
	}
	type result struct {
		engine   *engine
		cacheErr error
		err      error
	}
	built := make(chan result)
	gone := make(chan struct{})
	go func() {
		e, cacheErr, err := newEngine(context.WithoutCancel(ctx), r.cache, wasm, s)
		<-r.compile
		select {
		case built <- result{e, cacheErr, err}:
		case <-gone:
			if e != nil {
				_ = e.close(context.Background()) // nobody waits for it
			}
		}
	}()
	for {
		select {
		case b := <-built:
			if b.err != nil {
				// It may name what the module calls by any name.
				return nil, fmt.Errorf("compile %s: %s", s.File, headerSafe([]byte(b.err.Error()), 1<<10))
			}
			if b.cacheErr != nil {
				r.logger.Warn("compile cache is not used", "plugin", s.Name, "dir", r.cache.dir, "error", b.cacheErr)
			}
			return b.engine, nil
		case <-ctx.Done():
			close(gone)
			return nil, ctx.Err()
		case <-limit.C:
			if !limit.over() {
				continue
			}
			close(gone)
			return nil, fmt.Errorf("%s takes more than %v to compile: its functions are too large or too tangled; split them", s.File, r.compileLimit)
		}
	}
}

// keep remembers p for Close, unless that came first.
func (r *Runtime) keep(p *Plugin) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.plugins[p] = struct{}{}
	}
	return !r.closed
}

func (r *Runtime) forget(p *Plugin) {
	r.mu.Lock()
	delete(r.plugins, p)
	r.mu.Unlock()
}

func (s Settings) orDefault() Settings {
	if s.File == "" {
		s.File = s.Name
	}
	s.Limits = s.Limits.orDefault()
	if s.Recycle <= 0 {
		s.Recycle = 100_000
	}
	if s.Workers <= 0 {
		s.Workers = runtime.GOMAXPROCS(0)
	}
	return s
}
