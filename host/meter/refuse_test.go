package meter_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/host/meter"
)

// code is a module of one function () -> () with a memory and a table.
func code(body ...byte) []byte {
	return newBuilder().function("f", nil, nil, nil, append(body, end)).
		section(5, []byte{1, 0, 1}).section(4, []byte{1, 0x70, 0, 1}).bytes()
}

func TestRefusals(t *testing.T) {
	name := func(s string) []byte { return sized([]byte(s)) }
	for what, c := range map[string]struct {
		wasm      []byte
		reason    string
		malformed bool
	}{
		"nothing":          {nil, "not a WebAssembly module", true},
		"a component":      {[]byte("\x00asm\x0d\x00\x01\x00"), "component", false},
		"sections swapped": {[]byte("\x00asm\x01\x00\x00\x00\x03\x01\x00\x01\x01\x00"), "wrong order", true},
		"a section cut":    {[]byte("\x00asm\x01\x00\x00\x00\x01\x7f\x00"), "middle of something", true},

		"shared memory": {newBuilder().section(5, []byte{1, 3, 1, 2}).bytes(), "threads", false},
		"memory64":      {newBuilder().section(5, []byte{1, 4, 1}).bytes(), "64 bits", false},
		"two memories":  {newBuilder().section(5, []byte{2, 0, 1, 0, 1}).bytes(), "more than one memory", false},
		"imported and own memory": {newBuilder().section(2, append(append([]byte{1}, name("a")...), append(name("b"), 2, 0, 1)...)).
			section(5, []byte{1, 0, 1}).bytes(), "more than one memory", false},
		"a table of 64 bits":         {newBuilder().section(4, []byte{1, 0x70, 4, 1}).bytes(), "64 bits", false},
		"a huge table":               {newBuilder().section(4, []byte{1, 0x70, 0, 0xff, 0xff, 0xff, 0x7f}).bytes(), "elements; 10000000 are the most", false},
		"atomics":                    {code(0x41, 0, 0xfe, 0x10, 2, 0, 0x1a), "threads", false},
		"another memory":             {code(0x41, 0, 0x28, 0x42, 1, 0, 0x1a), "more than one memory", false},
		"old exceptions":             {code(0x06, 0x40, end), "translate-to-exnref", false},
		"relaxed SIMD":               {code(0x41, 0, 0xfd, 0x8d, 0x02), "beyond SIMD's 256", false},
		"SIMD in disguise":           {code(0xfd, 0x8c, 0x00), "unusual way", false},
		"select of a reference type": {code(0x1c, 1, 0x63, 0x70), "select", false},
		"an opcode of nobody":        {code(0x27), "(0x27)", false},
		"an opcode of no kind":       {code(0xfc, 0x20), "(0xfc 32)", false},
		"garbage collection":         {newBuilder().section(1, []byte{1, 0x5f, 0}).bytes(), "form 0x5f", false},
		"50,001 locals": {newBuilder().section(1, []byte{1, 0x60, 0, 0}).section(3, []byte{1, 0}).
			section(10, append([]byte{1}, sized([]byte{1, 0xd1, 0x86, 3, i32, end})...)).bytes(), "50000 locals", false},
		"1,001 parameters": {newBuilder().section(1, append([]byte{1, 0x60, 0xe9, 7}, make([]byte, 1002)...)).bytes(), "1001 parameters", false},

		"65 tables":             {newBuilder().section(4, append([]byte{65}, bytes.Repeat([]byte{0x70, 0, 0}, 65)...)).bytes(), "more than 64 tables", false},
		"100,001 globals":       {newBuilder().section(6, append([]byte{0xa1, 0x8d, 6}, bytes.Repeat([]byte{i32, 0, 0x41, 0, end}, 100_001)...)).bytes(), "100001 globals", false},
		"100,001 segments":      {newBuilder().section(9, append([]byte{0xa1, 0x8d, 6}, bytes.Repeat([]byte{1, 0, 0}, 100_001)...)).bytes(), "100001 element segments", false},
		"100,001 data segments": {newBuilder().section(11, append([]byte{0xa1, 0x8d, 6}, bytes.Repeat([]byte{1, 0}, 100_001)...)).bytes(), "100001 data segments", false},

		// These name what is added here, and must not become valid by that.
		"the budget":               {code(0x41, 0, 0x24, 0), "global 0 of 0", true},
		"the budget in a constant": {newBuilder().section(6, []byte{1, i32, 0, 0x23, 0, end}).bytes(), "global 0 of 0", true},
		"the budget exported":      {newBuilder().section(7, append(append([]byte{1}, name("x")...), 3, 0)).bytes(), "global 0 of 0", true},
		"a helper called":          {code(0x10, 1), "function 1 of 1", true},
		"a helper referred to":     {code(0xd2, 1, 0x1a), "function 1 of 1", true},
		"a helper exported":        {newBuilder().section(7, append(append([]byte{1}, name("x")...), 0, 0)).bytes(), "function 0 of 0", true},
		"a helper started":         {newBuilder().section(8, []byte{0}).bytes(), "function 0 of 0", true},
		"an added type":            {code(0x41, 0, 0x11, 1, 0), "type 1 of 1", true},
		"a block of an added type": {code(0x02, 1, end), "type 1 is unknown", true},
		"an added local":           {code(0x20, 0, 0x1a), "local 0 of 0", true},

		"a reserved export": {newBuilder().section(7, append(append([]byte{1}, name(meter.ExportBudget)...), 2, 0)).bytes(), "reserved", false},
		"a reserved import": {newBuilder().section(1, []byte{1, 0x60, 0, 0}).section(2, append(append([]byte{1}, name(meter.ImportModule)...), append(name("tick"), 0, 0)...)).bytes(), "reserved", false},

		"a branch too far":        {code(0x0c, 1), "out of its function", true},
		"a block left open":       {code(0x02, 0x40), "middle of something", true},
		"code behind the end":     {code(end), "behind the end", true},
		"an else alone":           {code(0x05), "without an if", true},
		"a table of a lying size": {code(0x41, 0, 0x0e, 0xff, 0xff, 0xff, 0xff, 7), "more entries than there are bytes", true},
	} {
		t.Run(what, func(t *testing.T) {
			out, _, err := meter.Rewrite(c.wasm, meter.Options{})
			var e *meter.Error
			if !errors.As(err, &e) || out != nil {
				t.Fatalf("not refused: %v", err)
			}
			if !strings.Contains(err.Error(), c.reason) || e.Malformed != c.malformed {
				t.Errorf("%q (malformed: %v), want %q (%v)", err, e.Malformed, c.reason, c.malformed)
			}
			if e.Offset < 0 || e.Offset > len(c.wasm) {
				t.Errorf("offset %d of %d", e.Offset, len(c.wasm))
			}
		})
	}
}

func TestMaxFunctions(t *testing.T) {
	b := newBuilder()
	for range 3 {
		b.function("", nil, nil, nil, []byte{end})
	}
	if _, _, err := meter.Rewrite(b.bytes(), meter.Options{MaxFunctions: 2}); err == nil || !strings.Contains(err.Error(), "3 functions; 2 are the most") {
		t.Error(err)
	}
}
