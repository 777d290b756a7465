package host

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/mqrun/mqrun/host/meter"
)

// features of WebAssembly that guests may use. Exceptions are not among them:
// wazero copies the whole stack at every try, which nothing bounds.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// engine is one plugin's wazero runtime and compiled module. Plugins never
// share one: modules of one runtime can import each other by name.
type engine struct {
	runtime  wazero.Runtime
	cache    wazero.CompilationCache // nil without a cache folder
	compiled wazero.CompiledModule
}

// newEngine compiles wasm, which prepare has been through, and links it to the
// host. A cache that cannot be used costs time, never a plugin: cacheErr says why.
func newEngine(ctx context.Context, d *diskCache, wasm []byte, s *Settings) (e *engine, cacheErr, err error) {
	if d != nil {
		entry, err := d.open(wasm, s.Limits.pages(), s.Trusted)
		if err == nil {
			e, err = buildEngine(ctx, entry.cache, wasm, s)
			if err == nil {
				if err := entry.seal(); err != nil {
					entry.abandon()
					return e, err, nil
				}
				d.evict(time.Now())
				return e, nil, nil
			}
		}
		if entry != nil {
			entry.abandon()
		}
		cacheErr = err
	}
	e, err = buildEngine(ctx, nil, wasm, s)
	return e, cacheErr, err
}

func buildEngine(ctx context.Context, cache wazero.CompilationCache, wasm []byte, s *Settings) (*engine, error) {
	cfg := wazero.NewRuntimeConfig().
		WithCoreFeatures(features).
		WithMemoryLimitPages(s.Limits.pages()).
		WithCloseOnContextDone(s.Trusted && !s.bare) // a metered guest stops at its ticks
	if cache != nil {
		cfg = cfg.WithCompilationCache(cache)
	}
	e := &engine{cache: cache, runtime: wazero.NewRuntimeWithConfig(ctx, cfg)}
	var err error
	if e.compiled, err = e.runtime.CompileModule(ctx, wasm); err == nil {
		err = e.link(ctx)
	}
	if err != nil {
		_ = e.close(ctx) // the first error tells
		return nil, err
	}
	return e, nil
}

// link gives the runtime the modules that guests may import.
func (e *engine) link(ctx context.Context) error {
	for _, m := range []struct {
		name  string
		funcs []hostFunc
	}{{ABIv1, importFuncs()}, {wasiModule, wasiFuncs()}, {envModule, envFuncs()}} {
		b := e.runtime.NewHostModuleBuilder(m.name)
		for _, f := range m.funcs {
			params, results := f.types()
			b.NewFunctionBuilder().WithGoModuleFunction(f.bind(), params, results).WithName(f.Name).Export(f.Name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("link module %q: %w", m.name, err)
		}
	}
	_, err := e.runtime.NewHostModuleBuilder(meter.ImportModule).NewFunctionBuilder().
		WithGoModuleFunction(tickFunc(), nil, []api.ValueType{api.ValueTypeI32}).WithName(meter.ImportTick).Export(meter.ImportTick).
		Instantiate(ctx)
	if err != nil {
		return fmt.Errorf("link module %q: %w", meter.ImportModule, err)
	}
	return nil
}

// close must not be called while a guest runs: it unmaps the guests' memory.
func (e *engine) close(ctx context.Context) error {
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		if cerr := e.cache.Close(ctx); err == nil {
			err = cerr
		}
	}
	return err
}

// hostFunc is a host function: its specification and what it does. run finds
// the parameters in stack and leaves the result in stack[0].
type hostFunc struct {
	Func
	run func(c *call, mem api.Memory, stack []uint64)
}

func signatures(fs []hostFunc) []Func {
	out := make([]Func, len(fs))
	for i, f := range fs {
		out[i] = f.Func
	}
	return out
}

func (f hostFunc) types() (params, results []api.ValueType) {
	one := map[string]api.ValueType{"i32": api.ValueTypeI32, "i64": api.ValueTypeI64, "f32": api.ValueTypeF32, "f64": api.ValueTypeF64}
	for _, p := range f.Params {
		params = append(params, one[p.Type])
	}
	if f.Result != "" {
		results = append(results, one[f.Result])
	}
	return params, results
}

// bind wraps f in what every host function does: find the call, look at the
// deadline, and turn a Go panic into the failure of this one call.
func (f hostFunc) bind() api.GoModuleFunc {
	name, run := f.Name, f.run
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		c, ok := ctx.(*call)
		if !ok { // while instantiating, wazero's options are wrapped around it
			c = ctx.Value(callKey{}).(*call)
		}
		defer c.guard()
		c.fn = name
		c.check()
		run(c, mod.Memory(), stack)
	}
}
