package meter_test

import (
	"bytes"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/mqrun/mqrun/host/meter"
)

// lazyModule has a table of 5,000 elements of which two segments fill some, from
// offset and from 4,390 on, the second over the end of the first if that is 4,096.
// run(i) calls the i-th; before it does, it executes code.
func lazyModule(offset int, code ...byte) *builder {
	b := newBuilder()
	for i := range 6 {
		b.function("", nil, []byte{i32}, nil, []byte{0x41, byte(10 + i), end})
	}
	b.function("other", []byte{i32}, nil, nil, []byte{end})
	b.function("run", []byte{i32}, []byte{i32}, nil, append(code, 0x20, 0, 0x11, 0, 0, end))
	return b.section(4, []byte{1, 0x70, 0, 0x88, 0x27}).
		section(9, append([]byte{2, 0}, append(lazySegment(offset, 0, 1, 2, 6), append([]byte{0}, lazySegment(4390, 3, 4, 5)...)...)...))
}

// lazySegment fills 300 elements with these functions again and again.
func lazySegment(at int, funcs ...byte) []byte {
	b := append(appendLEB([]byte{0x41}, at), end, 0xac, 2)
	for i := range 300 {
		b = append(b, funcs[i%len(funcs)])
	}
	return b
}

// lazySecond has a small table too, before the one that is called through.
func lazySecond() *builder {
	b := lazyModule(4096)
	body := b.bodies[len(b.bodies)-1]
	body[len(body)-2] = 1 // call_indirect's table
	segments := append([]byte{3, 0, 0x41, 3, end, 1, 0, 2, 1}, lazySegment(4096, 0, 1, 6)...)
	at := bytes.Index(segments[9:], []byte{0xac, 2}) + 9
	segments = append(segments[:at], append([]byte{0}, segments[at:]...)...) // its kind: functions
	segments = append(segments, 1, 0, 1, 3)                                  // and a passive one
	return b.section(4, []byte{2, 0x70, 0, 10, 0x70, 0, 0x88, 0x27}).section(9, segments)
}

// A table that is filled late has every function that it had, under every index,
// the first time and the second; and what is seen of a table stays as it was.
func TestTablesAreFilledLate(t *testing.T) {
	for name, tt := range map[string]struct {
		module *builder
		lazy   int
	}{
		"lazy":          {lazyModule(4096), 1},
		"from zero on":  {lazyModule(0), 1},
		"the second":    {lazySecond(), 1},
		"in a loop":     {lazyModule(4096, 0x03, 0x40, 0x41, 0, 0x0d, 0, end), 1},
		"out of bounds": {lazyModule(4998), 0},
		"grown":         {lazyModule(4096, 0xd0, 0x70, 0x41, 1, 0xfc, 15, 0, 0x1a), 0},
		"size":          {lazyModule(4096, 0xfc, 16, 0, 0x1a), 0},
		"read":          {lazyModule(4096, 0x41, 0, 0x25, 0, 0x1a), 0},
		"written":       {lazyModule(4096, 0x41, 0, 0xd0, 0x70, 0x26, 0), 0},
		"filled":        {lazyModule(4096, 0x41, 0, 0xd0, 0x70, 0x41, 0, 0xfc, 17, 0), 0},
		"exported":      {lazyModule(4096).section(7, []byte{2, 3, 'r', 'u', 'n', 0, 7, 1, 't', 1, 0}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			wasm := tt.module.bytes()
			out, info := rewrite(t, wasm, meter.Options{LazyTables: 256})
			if info.Lazy != tt.lazy {
				t.Fatalf("%+v", info)
			}
			r := newRuntime(t, &ticker{refill: meter.MinRefill})
			w := &twin{t: t, mods: [2]api.Module{instantiate(t, r, wasm), instantiate(t, r, out)}}
			for range 2 {
				for _, i := range []uint64{0, 1, 2, 255, 256, 299, 300, 4095, 4096, 4097, 4099, 4351, 4352, 4389, 4390, 4391, 4395, 4396, 4689, 4690, 4998, 4999, 5000, 8192, 1 << 31, 1<<32 - 4096, 1<<32 - 1} {
					w.call("run", i)
				}
			}
		})
	}
}
