package meter_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/mqrun/mqrun/host/meter"
)

// twin is a module as it is and metered, driven alike.
type twin struct {
	t    *testing.T
	mods [2]api.Module
}

func newTwin(t *testing.T, wasm []byte) *twin {
	r := newRuntime(t, &ticker{refill: meter.MinRefill})
	out, _ := rewrite(t, wasm, meter.Options{Merge: true})
	return &twin{t: t, mods: [2]api.Module{instantiate(t, r, wasm), instantiate(t, r, out)}}
}

// call runs an export of both and compares how they end.
func (w *twin) call(name string, args ...uint64) {
	w.t.Helper()
	var ends [2]string
	for i, mod := range w.mods {
		res, err := mod.ExportedFunction(name).Call(w.t.Context(), args...)
		ends[i] = fmt.Sprint(res)
		if err != nil {
			ends[i], _, _ = strings.Cut(err.Error(), "\n")
		}
	}
	if ends[0] != ends[1] {
		w.t.Errorf("%s%d: %s, metered %s", name, args, ends[0], ends[1])
	}
}

func (w *twin) sameMemory(what string) {
	w.t.Helper()
	var all [2][]byte
	for i, mod := range w.mods {
		all[i], _ = mod.Memory().Read(0, mod.Memory().Size())
	}
	if !bytes.Equal(all[0], all[1]) {
		w.t.Errorf("%s leaves another memory", what)
	}
}

func TestBulkMemory(t *testing.T) {
	w := newTwin(t, fixture(t, "bulk.wasm"))
	const size, piece = 64 << 16, 1 << 18
	rng := rand.New(rand.NewPCG(1, 2))
	pattern := make([]byte, size)
	for i := range pattern {
		pattern[i] = byte(rng.Uint32())
	}
	fresh := func() {
		for _, mod := range w.mods {
			mod.Memory().Write(0, pattern)
		}
	}
	edges := []uint64{0, 1, 16, 1023, 1024, 1025, piece - 1, piece, piece + 1, 3*piece + 5, size - 1, size, size + 1,
		1 << 31, 1<<32 - 1, 1<<32 - 16, 1<<32 - piece}
	for _, to := range edges {
		for _, n := range edges {
			fresh()
			w.call("memory.fill", to, 0xab, n)
			w.call("memory.init", to, n, 3)
			w.call("memory.init", 5, to, n)
			w.sameMemory(fmt.Sprintf("fill and init %#x %#x", to, n))
			for _, from := range []uint64{0, to + 1, to - 1, to + piece/2, size - n, n} {
				w.call("memory.copy", to, from&0xffffffff, n)
			}
			w.sameMemory(fmt.Sprintf("copy %#x %#x", to, n))
		}
	}
	fresh()
	for range 60 {
		to, from := uint64(rng.Uint32N(size)), uint64(rng.Uint32N(size))
		n := uint64(rng.Uint32N(uint32(size - max(to, from) + 2)))
		w.call("memory.copy", to, from, n)
		w.call("memory.fill", to, from, n/3)
	}
	w.sameMemory("a series of copies")
	w.call("data.drop", 0, 0, 0)
	w.call("memory.init", 0, 0, 0)
	w.call("memory.init", 0, 0, 16)
	w.call("memory.init", 0, 0, 2000)
}

func TestBulkTables(t *testing.T) {
	w := newTwin(t, fixture(t, "bulk.wasm"))
	const piece = 1 << 15
	w.call("table.init", 7, 0, 3)
	w.call("table.init", 399_998, 1, 2)
	w.call("table.sum")
	for _, c := range [][3]uint64{
		{0, 0, 0}, {0, 1, 400_000}, {0, 1, 1}, {100, 2, 3000}, {5, 0, 2*piece + 7}, {399_999, 0, 1}, {400_000, 0, 0},
		{400_001, 0, 0}, {1<<32 - 1, 0, 2}, {0, 1<<32 - 1, 2}, {0, 2, 1<<32 - 1}, {0, 3000, 0}, {3, 2999, 1},
	} {
		for _, op := range []string{"table.fill", "table.copy", "table.between", "table.init"} {
			w.call(op, c[0], c[1], c[2])
		}
		w.call("table.sum")
	}
	for _, c := range [][3]uint64{{0, 3, 300_000}, {3, 0, 300_000}, {0, piece, piece}, {piece, 0, piece + 1}} {
		w.call("table.copy", c[0], c[1], c[2])
		w.call("table.sum")
	}
	w.call("table.grow", 5, 0, 0)
	w.call("table.grow", 1<<32-1, 0, 0)
	w.call("table.sum")
	w.call("elem.drop", 0, 0, 0)
	w.call("table.init", 0, 0, 1)
	w.call("table.init", 0, 0, 0)
}
