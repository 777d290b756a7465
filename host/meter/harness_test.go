package meter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/mqrun/mqrun/host/meter"
)

const allFeatures = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst |
	experimental.CoreFeaturesExceptionHandling | experimental.CoreFeaturesTypedFunctionReferences

// errStopped is what tick panics with.
var errStopped = errors.New("stopped by tick")

// ticker is the host's half of metering.
type ticker struct {
	refill uint64
	ticks  int
	stop   int // panic at this tick; 0 = never
}

func (k *ticker) tick(_ context.Context, stack []uint64) {
	k.ticks++
	if k.ticks == k.stop {
		panic(errStopped)
	}
	stack[0] = k.refill
}

func newRuntime(t testing.TB, k *ticker) wazero.Runtime {
	t.Helper()
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCoreFeatures(allFeatures))
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	_, err := r.NewHostModuleBuilder(meter.ImportModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(k.tick), nil, []api.ValueType{api.ValueTypeI32}).
		Export(meter.ImportTick).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	return r
}

func instantiate(t testing.TB, r wazero.Runtime, wasm []byte) api.Module {
	t.Helper()
	mod, err := r.InstantiateWithConfig(t.Context(), wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatalf("instantiate: %v", err)
	}
	return mod
}

func rewrite(t testing.TB, wasm []byte, o meter.Options) ([]byte, *meter.Info) {
	t.Helper()
	out, info, err := meter.Rewrite(wasm, o)
	if err != nil {
		t.Fatalf("rewrite: %v", err)
	}
	return out, info
}

// metered instantiates what Rewrite makes of a module.
func metered(t testing.TB, k *ticker, wasm []byte) api.Module {
	t.Helper()
	out, _ := rewrite(t, wasm, meter.Options{Merge: true})
	return instantiate(t, newRuntime(t, k), out)
}

func budget(t testing.TB, mod api.Module) api.MutableGlobal {
	t.Helper()
	g, ok := mod.ExportedGlobal(meter.ExportBudget).(api.MutableGlobal)
	if !ok {
		t.Fatalf("%s is not exported as a variable", meter.ExportBudget)
	}
	return g
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return read(t, filepath.Join("testdata", name))
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
