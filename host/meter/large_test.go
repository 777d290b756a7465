package meter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/host/meter"
)

// Modules that are large in one way or other are rewritten, or refused, in memory
// of the order of their size. (In a time of that order, too: any of them would
// outlast the test's patience if it were squared.)
func TestLargeModules(t *testing.T) {
	repeat := func(n int, b ...byte) []byte { return bytes.Repeat(b, n) }
	body := func(parts ...[]byte) []byte {
		return newBuilder().function("f", nil, nil, []byte{i32, i32, i32, i32}, append(bytes.Join(parts, nil), end)).
			section(5, []byte{1, 0, 1}).bytes()
	}
	functions := newBuilder().section(1, []byte{1, 0x60, 0, 0}).
		section(3, append([]byte{0xc0, 0x84, 0x3d}, repeat(1_000_000, 0)...)).
		section(10, append([]byte{0xc0, 0x84, 0x3d}, repeat(1_000_000, 2, 0, end)...)).bytes()
	segments := newBuilder().function("f", nil, nil, nil, []byte{end}).section(4, []byte{1, 0x70, 0, 10}).
		section(9, append([]byte{0xc0, 0x84, 0x3d}, repeat(1_000_000, 0, 0x41, 0, end, 1, 0)...)).bytes()
	var each []byte // one function at the beginning of each table of 32,768
	for i := range 50_000 {
		each = append(binary.AppendUvarint(append(each, 2), uint64(i)), 0x41, 0, end, 0, 1, 0)
	}
	tables := newBuilder().function("f", nil, nil, nil, []byte{end}).
		section(4, append([]byte{0xd0, 0x86, 3}, repeat(50_000, 0x70, 0, 0x80, 0x80, 2)...)).
		section(9, append([]byte{0xd0, 0x86, 3}, each...)).bytes()
	targets := append([]byte{0x41, 0, 0x0e, 0xc0, 0x84, 0x3d}, repeat(1_000_001, 0)...)
	for name, c := range map[string]struct {
		wasm []byte
		fits bool
	}{
		"a million functions":          {functions, true},
		"a million segments":           {segments, false},
		"50,000 tables":                {tables, false},
		"a br_table of a million":      {body(targets), false},
		"a dispatch of 65,520":         {body([]byte{3, 0x40, 2, 0x40, 2, 0x40, 0x20, 0, 0x0e, 0xf0, 0xff, 3}, repeat(65_521, 1), repeat(3, end)), true},
		"deep blocks":                  {body(repeat(16_000, 2, 0x40), repeat(16_000, end)), true},
		"deeper blocks":                {body(repeat(17_000, 2, 0x40), repeat(17_000, end)), false},
		"deep loops":                   {body(repeat(16_000, 3, 0x40), repeat(16_000, 0x20, 1, 0x0d, 0, end)), true},
		"many loops":                   {body(repeat(65_000, 3, 0x40, 0x20, 1, 0x20, 2, 0x6a, 0x21, 3, 0x20, 3, 0x0d, 0, end)), true},
		"a million loops":              {body(repeat(1_000_000, 3, 0x40, end)), false},
		"deep dispatches":              {body(repeat(8_000, 2, 0x40, 3, 0x40, 2, 0x40, 0x20, 0, 0x0e, 0, 0, end), repeat(16_000, end)), true},
		"a wide dispatch with jumps":   {body([]byte{3, 0x40}, repeat(16_000, 2, 0x40), []byte{0x20, 0, 0x0e, 2, 0, 1, 2, end}, repeat(15_999, 0x41, 1, 0x21, 0, 0x20, 1, 0x04, 0x40, 0x41, 2, 0x21, 0, 0x0c, 0, end, end), []byte{end}), true},
		"many fills":                   {body(repeat(800_000, 0x41, 0, 0x41, 0, 0x20, 1, 0xfc, 11, 0)), true},
		"seven million nops":           {body(repeat(7_000_000, 1)), true},
		"eight million nops":           {body(repeat(8_000_000, 1)), false},
		"a section that counts 2^32-1": {newBuilder().section(3, []byte{0xff, 0xff, 0xff, 0xff, 0xf}).bytes(), false},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, _, err := meter.Rewrite(c.wasm, meter.Options{MaxEffort: 1 << 62, LazyTables: 1})
			runtime.ReadMemStats(&after)
			var e *meter.Error
			if (err == nil) != c.fits || err != nil && !errors.As(err, &e) {
				t.Fatal(err)
			}
			if used, most := after.TotalAlloc-before.TotalAlloc, uint64(60*len(c.wasm)+64<<20); used > most {
				t.Errorf("took %d MiB for a module of %d KiB", used>>20, len(c.wasm)>>10)
			}
			if len(out) > 12*len(c.wasm)+4096 {
				t.Errorf("%d bytes from %d", len(out), len(c.wasm))
			}
		})
	}
}

// What would keep the compiler busy for minutes, or end the process, is refused.
func TestCompileBombs(t *testing.T) {
	ifs := bytes.Repeat([]byte{0x20, 0, 0x04, 0x40, end}, 100_000)
	var phis []byte
	for i := range 10_000 {
		phis = append(binary.AppendUvarint(append(phis, 0x20), uint64(i)), 0x1a)
	}
	locals := []byte{1, 0x90, 0x4e, i32} // 10,000
	for name, body := range map[string][]byte{
		"blocks": append(append([]byte{1, 1, i32}, ifs...), end),
		"values": append(append(append(locals, ifs[:5000]...), phis...), end),
	} {
		wasm := newBuilder().section(1, []byte{1, 0x60, 0, 0}).section(3, []byte{1, 0}).
			section(10, append([]byte{1}, sized(body)...)).bytes()
		_, _, err := meter.Rewrite(wasm, meter.Options{})
		if err == nil || !strings.Contains(err.Error(), "takes too long to compile") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := meter.Rewrite(wasm, meter.Options{MaxEffort: 1 << 62}); err != nil {
			t.Errorf("%s without a limit: %v", name, err)
		}
	}
}
