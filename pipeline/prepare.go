package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/watch"
)

// plugin is a loaded module with what tells whether a new configuration can go
// on with it.
type plugin struct {
	settings string // hash of them
	digest   string // of the content
	run      handler
	loaded   *host.Plugin // nil for a native one

	// The file that it was read from, and whether a write since would show in
	// that. Guarded by Manager.applying.
	file watch.ID
	sure bool

	// rolledBack is the digest of the module that was to take this one's place
	// and failed too much; held: that one lies in its file.
	rolledBack string
	held       bool
}

func (p *plugin) label(name string) string {
	if len(p.digest) < 12 {
		return name
	}
	return name + "@sha256:" + p.digest[:12]
}

// loader makes a plugin ready, or returns the one of have that it already is.
type loader func(ctx context.Context, c *config.Plugin, workers int, have []*plugin) (*plugin, error)

// set is plugins by name.
type set map[string]*plugin

// loadPlugins makes every plugin of cfg ready. All that fails is told at once;
// then nothing is kept but what was there.
func loadPlugins(ctx context.Context, load loader, cfg *config.Config, have map[string][]*plugin) (set, config.Problems) {
	next := set{}
	var problems config.Problems
	for _, name := range slices.Sorted(maps.Keys(cfg.Plugins)) {
		pl, err := load(ctx, cfg.Plugins[name], workers(cfg, name), have[name])
		if err != nil {
			problems = append(problems, cfg.Problem(err.Error(), "", "plugins", name, "module"))
			continue
		}
		next[name] = pl
	}
	if problems != nil {
		_ = closePlugins(ctx, next, have) // they never ran
		return nil, problems
	}
	return next, nil
}

// workers is how many instances of a plugin its pipelines can use at once.
func workers(cfg *config.Config, plugin string) int {
	n := 0
	for _, p := range cfg.Pipelines {
		if slices.Contains(p.Steps, plugin) {
			if p.Workers > 0 {
				n += p.Workers
			} else {
				n += runtime.GOMAXPROCS(0)
			}
		}
	}
	return max(n, 1)
}

// sandboxed compiles, links and starts plugins in rt. They keep what they store
// in kv; nil = nothing answers.
func sandboxed(rt *host.Runtime, kv host.KV) loader {
	return func(ctx context.Context, c *config.Plugin, workers int, have []*plugin) (*plugin, error) {
		return loadSandboxed(ctx, rt, kv, c, workers, have)
	}
}

func loadSandboxed(ctx context.Context, rt *host.Runtime, kv host.KV, c *config.Plugin, workers int, have []*plugin) (*plugin, error) {
	info, err := c.Stat()
	if err != nil {
		return nil, err
	}
	file, settings := watch.IDOf(info), c.Hash()
	sure := file.Sure(time.Now())
	for _, p := range have {
		if p.sure && p.file == file && p.settings == settings {
			return p, nil // unread: a hundred plugins have megabytes each
		}
	}
	wasm, err := c.ReadModule()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(wasm)
	p, err := among(have, c, settings, hex.EncodeToString(sum[:]))
	if err != nil {
		return nil, err
	}
	if p == nil {
		if p, err = loadModule(ctx, rt, kv, c, workers, wasm); err != nil {
			return nil, err
		}
	}
	if p.digest == hex.EncodeToString(sum[:]) {
		p.file, p.sure = file, sure
	}
	return p, nil
}

// among finds the plugin that has the settings and the content, or stands for
// them because that content was rolled back.
func among(have []*plugin, c *config.Plugin, settings, digest string) (*plugin, error) {
	for _, p := range have {
		switch {
		case p.settings == settings && (p.digest == digest || p.rolledBack == digest):
			p.held = p.digest != digest
			return p, nil
		case p.rolledBack == digest:
			return nil, fmt.Errorf("load plugin %q: %s (sha256 %.12s) was rolled back because it failed too many messages, and its settings are others now; put another module there, or the one before", c.Name, c.Module, digest)
		}
	}
	return nil, nil
}

// loadModule loads a plugin from bytes that have passed all checks.
func loadModule(ctx context.Context, rt *host.Runtime, kv host.KV, c *config.Plugin, workers int, wasm []byte) (*plugin, error) {
	s := Settings(c)
	s.KV, s.Workers = kv, workers
	p, err := rt.Load(ctx, wasm, s)
	if err != nil {
		return nil, err
	}
	return &plugin{settings: c.Hash(), digest: p.Digest(), run: p, loaded: p}, nil
}

// Settings are what the sandbox is told of a configured plugin.
func Settings(c *config.Plugin) host.Settings {
	return host.Settings{
		Name: c.Name, File: c.Module, Config: c.Config, ConfigJSON: c.ConfigJSON,
		ABI: c.ABI, Export: c.Export, Start: c.Start, Args: c.Args,
		Publish: c.Allow.Publish, Buckets: c.Allow.KV, Env: environment(c.Allow.Env),
		Limits: hostLimits(c.Limits), Trusted: !c.Limits.Meter, Isolation: c.Isolation, Recycle: c.Recycle,
	}
}

func hostLimits(l config.Limits) host.Limits {
	return host.Limits{
		Memory: l.Memory, Timeout: l.Timeout, Init: l.Init, Fuel: l.Fuel, Outputs: l.Outputs, OutputBytes: l.OutputBytes,
		LogLines: l.LogLines, LogBytes: l.LogBytes, ReasonBytes: l.ReasonBytes, Table: l.Table, Module: l.Module,
	}
}

// environment is what a plugin may see of ours; what is not set is not there.
func environment(names []string) map[string]string {
	env := map[string]string{}
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	return env
}

// closePlugins closes those of a set that are not among the others.
func closePlugins(ctx context.Context, of set, keep map[string][]*plugin) error {
	var errs []error
	for name, p := range of {
		if p.loaded != nil && !slices.Contains(keep[name], p) {
			errs = append(errs, p.loaded.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// chainFor is a pipeline's steps over the loaded plugins.
func chainFor(c *config.Pipeline, generation uint64, plugins set, deny []string) *chain {
	steps := make([]step, len(c.Steps))
	for i, name := range c.Steps {
		steps[i] = step{name: name, plugin: plugins[name].label(name), run: plugins[name].run}
	}
	return newChain(c, generation, steps, deny)
}

// Check is what validate and run share: it loads every plugin and lays out the
// streams as on an empty server, and reports all problems. Nothing is kept.
func Check(ctx context.Context, rt *host.Runtime, cfg *config.Config) config.Problems {
	plugins, problems := loadPlugins(ctx, sandboxed(rt, nil), cfg, nil)
	if err := closePlugins(ctx, plugins, nil); err != nil {
		problems = append(problems, cfg.Problem(err.Error(), "", "plugins"))
	}
	_, more := planLayout(cfg, nil, cfg.Server.MaxBytes, cfg.Server.MaxPayload)
	return append(problems, more...)
}
