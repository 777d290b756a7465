package meter_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"golang.org/x/sys/unix"

	"github.com/mqrun/mqrun/host/meter"
)

var ratios = flag.Bool("ratios", false, "measure guests with no limits, wazero's switch and metering (a minute)")

// What the benchmark's guests are run with.
const (
	plain = iota
	switched
	meteredGuest
	modes
)

// interval is the budget of one tick.
const interval = 100_000

// threadTime is the CPU time of this thread.
func threadTime(t testing.TB) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// guest of the benchmark with its payload.
type guest struct {
	mode    int
	mod     api.Module
	budget  api.MutableGlobal
	payload []byte
}

func newGuest(t testing.TB, wasm []byte, mode int) *guest {
	ctx := context.Background()
	g := &guest{mode: mode}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCloseOnContextDone(mode == switched))
	t.Cleanup(func() { _ = r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	input := func(_ context.Context, m api.Module, stack []uint64) {
		m.Memory().Write(uint32(stack[0]), g.payload)
		stack[0] = uint64(len(g.payload))
	}
	emit := func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = 0 }
	two, one := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}, []api.ValueType{api.ValueTypeI32}
	if _, err := r.NewHostModuleBuilder("env").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(input), two, one).Export("input").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(emit), two, one).Export("emit").Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	k := &ticker{refill: interval}
	if _, err := r.NewHostModuleBuilder(meter.ImportModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(k.tick), nil, one).Export(meter.ImportTick).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	if mode == meteredGuest {
		wasm, _ = rewrite(t, wasm, meter.Options{Merge: true})
	}
	mod, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithStartFunctions("_initialize").WithSysWalltime().WithSysNanotime())
	if err != nil {
		t.Fatal(err)
	}
	g.mod = mod
	if mode == meteredGuest {
		g.budget = budget(t, mod)
	}
	return g
}

// cost of one call in nanoseconds of CPU time.
func (g *guest) cost(t testing.TB, f api.Function) float64 {
	stack := make([]uint64, 1)
	start := threadTime(t)
	for n := 1; ; n++ {
		ctx, cancel := context.Background(), func() {}
		switch g.mode {
		case switched:
			ctx, cancel = context.WithTimeout(ctx, time.Minute)
		case meteredGuest:
			g.budget.Set(interval)
		}
		stack[0] = 0
		err := f.CallWithStack(ctx, stack)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if n%8 == 0 {
			if took := threadTime(t) - start; took > 10*time.Millisecond {
				return float64(took) / float64(n)
			}
		}
	}
}

// TestRatios prints what metering costs: go test -run TestRatios -ratios -v.
func TestRatios(t *testing.T) {
	if !*ratios {
		t.Skip("needs -ratios")
	}
	runtime.LockOSThread()
	document := []byte(`{"user":{"id":12345,"name":"Jane Doe","tags":["a","bb","ccc"],"active":true},"items":[` +
		strings.Repeat(`{"sku":"C-333","qty":12,"price":10},`, 8) + `{"sku":"D-1","qty":1,"price":499}],"note":"` + strings.Repeat("lorem ipsum ", 30) + `"}`)
	data := make([]byte, 1<<16)
	for i := range data {
		data[i] = byte(i * 7)
	}
	jobs := []struct {
		name, export string
		payload      []byte
	}{{"echo of 1 KiB", "echo", data[:1024]}, {"sum of 64 KiB", "sum", data}, {"hash of 64 KiB", "fnv", data}, {"JSON", "json", document}}
	fmt.Println("| guest | job | no limits | wazero's switch | metered |\n|---|---|---|---|---|")
	for _, g := range []struct {
		name string
		wasm []byte
	}{{"C", fixture(t, "jobs.wasm")}, {"Go", goGuest(t)}} {
		guests := [modes]*guest{}
		for mode := range guests {
			guests[mode] = newGuest(t, g.wasm, mode)
		}
		for _, job := range jobs {
			var costs [modes][]float64
			for range 15 {
				for mode, in := range guests {
					in.payload = job.payload
					costs[mode] = append(costs[mode], in.cost(t, in.mod.ExportedFunction(job.export)))
				}
			}
			fmt.Printf("| %s | %s |", g.name, job.name)
			var base float64
			for mode := range costs {
				slices.Sort(costs[mode])
				v := costs[mode][len(costs[mode])/4]
				if mode == plain {
					base = v
				}
				fmt.Printf(" %.0f ns (%.2f) |", v, v/base)
			}
			fmt.Println()
		}
	}
}

func BenchmarkRewrite(b *testing.B) {
	wasm := goGuest(b)
	b.SetBytes(int64(len(wasm)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := meter.Rewrite(wasm, meter.Options{Merge: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// The Go guest does the same work metered.
func TestGoGuest(t *testing.T) {
	wasm := goGuest(t)
	document := []byte(`{"b":[1,2,{"c":"d"}],"a":null}`)
	var results [2][]uint64
	for i, mode := range []int{plain, meteredGuest} {
		g := newGuest(t, wasm, mode)
		for _, job := range []string{"echo", "sum", "fnv", "json"} {
			g.payload = document
			res, err := g.mod.ExportedFunction(job).Call(t.Context(), 0)
			if err != nil {
				t.Fatal(job, err)
			}
			results[i] = append(results[i], res...)
		}
	}
	if !slices.Equal(results[0], results[1]) {
		t.Errorf("results %v, metered %v", results[0], results[1])
	}
}
