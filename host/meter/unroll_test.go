package meter_test

import (
	"testing"

	"github.com/mqrun/mqrun/host/meter"
)

// twiceModule has an innermost loop that goes on and leaves in every way: by
// br_if, br_table and return, from inside blocks, with a value, to its own end and
// past an outer loop. at counts rounds and sum remembers the ways.
func twiceModule() []byte {
	const n, sum, at = 0, 1, 2 // locals
	count := []byte{0x20, at, 0x41, 1, 0x6a, 0x22, at}
	code := []byte{
		0x02, 0x40, // block out
		0x03, 0x40, // loop outer
		0x03, i32, // loop inner, with a value
		0x20, sum, 0x41, 31, 0x6c, 0x20, at, 0x6a, 0x21, sum, // sum = sum*31 + at
	}
	code = append(code, count...)
	code = append(code,
		0x20, n, 0x4e, 0x04, 0x40, 0x20, sum, 0x0f, end, // if at >= n: return sum
		0x02, 0x40, // block
		0x20, at, 0x41, 7, 0x71, 0x0e, 4, 1, 1, 0, 2, 0, // br_table of at&7: inner inner - outer, else -
		end,
		0x20, at, 0x41, 3, 0x70, 0x45, 0x0d, 0, // br_if inner, at%3 == 0
		0x20, at, 0x41, 37, 0x70, 0x45, 0x0d, 2, // br_if out, at%37 == 0
		0x20, sum, // its value
		end,
		0x20, sum, 0x6a, 0x21, sum,
		0x0c, 0, // br outer
		end, end,
		0x20, sum, 0x41, 0x7f, 0x73, end,
	)
	return newBuilder().function("run", []byte{i32}, []byte{i32}, []byte{i32, i32}, code).bytes()
}

// A loop that is written twice does what it did, and pays for all of its rounds
// and little more.
func TestLoopsWrittenTwice(t *testing.T) {
	wasm := twiceModule()
	out, info := rewrite(t, wasm, meter.Options{})
	if info.Loops != 2 || info.Twice != 1 {
		t.Errorf("%+v", info)
	}
	k := &ticker{refill: 1 << 30}
	r := newRuntime(t, k)
	plain, mod := instantiate(t, r, wasm), instantiate(t, r, out)
	for n := range uint64(200) {
		want, err := plain.ExportedFunction("run").Call(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		b := budget(t, mod)
		b.Set(1 << 20)
		got, err := mod.ExportedFunction("run").Call(t.Context(), n)
		if err != nil || got[0] != want[0] {
			t.Fatalf("%d rounds: %v %v, want %v", n, got, err, want)
		}
		rounds := min(max(n, 1), 37)
		if charge := 1<<20 - b.Get(); charge < 15*(rounds-1) || charge > 100*(rounds+1) {
			t.Errorf("%d rounds are charged %d", rounds, charge)
		}
	}
}
