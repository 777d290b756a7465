package meter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/mqrun/mqrun/host/meter"
)

// Whatever the bytes are, Rewrite refuses them or gives a module that is as valid
// as they were: it never panics, and never makes a module valid or invalid.
func FuzzRewrite(f *testing.F) {
	for _, pattern := range []string{"testdata/*.wasm", "../testdata/*.wasm"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			f.Add(read(f, p))
		}
	}
	for seed := range uint64(20) {
		f.Add(randomProgram(rand.New(rand.NewPCG(seed, 1))))
	}
	f.Add(dataModule([]dataSegment{{8, "ab", ""}, {20, "cd", ""}, {0, "p", "passive"}}, []byte{1, 0, 2}))
	f.Add(lazyModule(4096).bytes())
	f.Add(lazySecond().bytes())
	ctx := context.Background()
	// Small limits: a fuzzed module may declare the largest memory there is.
	config := wazero.NewRuntimeConfigCompiler().WithCoreFeatures(allFeatures).WithMemoryLimitPages(1024)
	f.Fuzz(func(t *testing.T, wasm []byte) {
		if len(wasm) > 1<<16 {
			t.Skip("large")
		}
		// Little effort: the compiler has seconds, not minutes.
		out, info, err := meter.Rewrite(wasm, meter.Options{Merge: true, LazyTables: 2, MaxEffort: 1e7})
		if err != nil {
			var e *meter.Error
			if !errors.As(err, &e) || out != nil {
				t.Fatalf("another error: %v", err)
			}
			return
		}
		if info.MinRefill > meter.MinRefill {
			t.Fatalf("takes %d at least", info.MinRefill)
		}
		r := wazero.NewRuntimeWithConfig(ctx, config)
		defer func() { _ = r.Close(ctx) }()
		_, before := r.CompileModule(ctx, wasm)
		_, after := r.CompileModule(ctx, out)
		if before != nil && strings.Contains(before.Error(), "custom") {
			return // what is damaged there is left out, and hides the rest
		}
		if (before == nil) != (after == nil) {
			t.Fatalf("before: %v; after: %v", before, after)
		}
	})
}
