package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

// plugin is a loaded module with the key that tells whether a new
// configuration can go on with it.
type plugin struct {
	key    string // settings and content
	digest string
	run    handler
	loaded *host.Plugin // nil for a native one
}

func (p *plugin) label(name string) string {
	if len(p.digest) < 12 {
		return name
	}
	return name + "@sha256:" + p.digest[:12]
}

// loader makes a plugin ready, or returns have when that is the same one.
type loader func(ctx context.Context, c *config.Plugin, workers int, have *plugin) (*plugin, error)

// loadPlugins makes every plugin of cfg ready. All that fails is told at once;
// then nothing is kept.
func loadPlugins(ctx context.Context, load loader, cfg *config.Config, have map[string]*plugin) (map[string]*plugin, config.Problems) {
	next := map[string]*plugin{}
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
	return func(ctx context.Context, c *config.Plugin, workers int, have *plugin) (*plugin, error) {
		return loadSandboxed(ctx, rt, kv, c, workers, have)
	}
}

func loadSandboxed(ctx context.Context, rt *host.Runtime, kv host.KV, c *config.Plugin, workers int, have *plugin) (*plugin, error) {
	wasm, err := c.ReadModule()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(wasm)
	digest := hex.EncodeToString(sum[:])
	key := c.Hash() + ":" + digest
	if have != nil && have.key == key {
		return have, nil
	}
	return loadModule(ctx, rt, kv, c, workers, wasm)
}

// loadModule loads a plugin from bytes that have passed all checks.
func loadModule(ctx context.Context, rt *host.Runtime, kv host.KV, c *config.Plugin, workers int, wasm []byte) (*plugin, error) {
	s := Settings(c)
	s.KV, s.Workers = kv, workers
	p, err := rt.Load(ctx, wasm, s)
	if err != nil {
		return nil, err
	}
	return &plugin{key: c.Hash() + ":" + p.Digest(), digest: p.Digest(), run: p, loaded: p}, nil
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

// closePlugins closes those of a set that the other one does not use.
func closePlugins(ctx context.Context, set, keep map[string]*plugin) error {
	var errs []error
	for name, p := range set {
		if keep[name] != p && p.loaded != nil {
			errs = append(errs, p.loaded.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// chainFor is a pipeline's steps over the loaded plugins.
func chainFor(c *config.Pipeline, generation uint64, plugins map[string]*plugin, deny []string) *chain {
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
