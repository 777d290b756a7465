package meter_test

import (
	"errors"
	"testing"

	"github.com/mqrun/mqrun/host/meter"
)

// Every guest that would run for ever comes to a tick again and again.
func TestWSM01_EveryLoopTicks(t *testing.T) {
	k := &ticker{refill: meter.MinRefill}
	r := newRuntime(t, k)
	wasm, _ := rewrite(t, fixture(t, "hostile.wasm"), meter.Options{})
	for name := range instantiate(t, r, wasm).ExportedFunctionDefinitions() {
		t.Run(name, func(t *testing.T) {
			k.ticks, k.stop = 0, 200
			_, err := instantiate(t, r, wasm).ExportedFunction(name).Call(t.Context())
			if !errors.Is(err, errStopped) {
				t.Errorf("ended with %v after %d ticks", err, k.ticks)
			}
		})
	}
}

// A loop body of many instructions without a branch ticks on the way.
func TestStraightLineIsCharged(t *testing.T) {
	const n, refill = 200_000, 10_000
	code := []byte{0x41, 0} // i32.const 0
	for range n {
		code = append(code, 0x41, 1, 0x6a) // i32.const 1, i32.add
	}
	b := newBuilder().function("run", nil, []byte{i32}, nil, append(code, end))
	k := &ticker{refill: refill}
	mod := metered(t, k, b.bytes())
	res, err := mod.ExportedFunction("run").Call(t.Context())
	if err != nil || res[0] != n {
		t.Fatal(res, err)
	}
	if want := 2 * n / refill; k.ticks < want {
		t.Errorf("%d ticks, want %d", k.ticks, want)
	}
}

// A large fill is charged before it runs, piece by piece.
func TestBulkIsChargedBeforeItRuns(t *testing.T) {
	k := &ticker{refill: meter.MinRefill, stop: 4}
	mod := metered(t, k, fixture(t, "bulk.wasm"))
	size := mod.Memory().Size()
	_, err := mod.ExportedFunction("memory.fill").Call(t.Context(), 0, 7, uint64(size))
	if !errors.Is(err, errStopped) {
		t.Fatalf("ended with %v", err)
	}
	const paid = 3 << 18 // each piece takes a tick
	for _, at := range []uint32{0, paid - 1} {
		if b, _ := mod.Memory().ReadByte(at); b != 7 {
			t.Errorf("byte %#x is %d", at, b)
		}
	}
	if b, _ := mod.Memory().ReadByte(paid); b != 0 {
		t.Error("a piece was filled that could not be paid")
	}
}

func TestTablesAreBounded(t *testing.T) {
	k := &ticker{refill: 1 << 30}
	out, _ := rewrite(t, fixture(t, "bulk.wasm"), meter.Options{TableMax: 400_010})
	mod := instantiate(t, newRuntime(t, k), out)
	sum := func() uint64 {
		res, err := mod.ExportedFunction("table.sum").Call(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	before := sum()
	if _, err := mod.ExportedFunction("table.grow").Call(t.Context(), 11, 0, 0); err != nil {
		t.Fatal(err)
	}
	if sum() != before {
		t.Error("the table has grown past its limit")
	}
	if _, err := mod.ExportedFunction("table.grow").Call(t.Context(), 10, 0, 0); err != nil {
		t.Fatal(err)
	}
	if sum() == before {
		t.Error("the table has not grown up to its limit")
	}
}
