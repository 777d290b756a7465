package meter_test

import (
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/mqrun/mqrun/host/meter"
)

type dataSegment struct {
	offset int
	data   string
	form   string // "", passive, sum: at an offset that is computed, 70,000
}

func dataModule(segments []dataSegment, memory []byte) []byte {
	var list [][]byte
	for _, s := range segments {
		b := append(appendLEB([]byte{0, 0x41}, s.offset), end)
		switch s.form {
		case "passive":
			b = []byte{1}
		case "sum":
			b = append(appendLEB([]byte{0, 0x41}, 69_000), 0x41)
			b = append(appendLEB(b, 1000), 0x6a, end)
		}
		list = append(list, append(b, sized([]byte(s.data))...))
	}
	b := newBuilder().section(7, append(append([]byte{1}, sized([]byte("memory"))...), 2, 0)).section(11, vector(list))
	if memory != nil {
		b.section(5, memory)
	}
	return b.bytes()
}

func TestDataIsMergedUnseen(t *testing.T) {
	two := []byte{1, 0, 2} // pages
	for name, c := range map[string]struct {
		segments []dataSegment
		after    int
		traps    bool
	}{
		"neighbours":            {[]dataSegment{{8, "ab", ""}, {10, "cd", ""}, {12, "ef", ""}}, 1, false},
		"a gap":                 {[]dataSegment{{8, "ab", ""}, {20, "cd", ""}, {276, "ef", ""}}, 1, false},
		"a wide gap":            {[]dataSegment{{8, "ab", ""}, {267, "cd", ""}}, 2, false},
		"written twice":         {[]dataSegment{{8, "abcdefgh", ""}, {10, "xy", ""}}, 2, false},
		"the gap is written":    {[]dataSegment{{20, "in between", ""}, {8, "ab", ""}, {40, "cd", ""}}, 3, false},
		"back and on":           {[]dataSegment{{1000, "high", ""}, {8, "ab", ""}, {20, "cd", ""}}, 2, false},
		"empty ones":            {[]dataSegment{{8, "ab", ""}, {9, "", ""}, {10, "cd", ""}}, 1, false},
		"at a sum":              {[]dataSegment{{69_990, "ab", ""}, {0, "here", "sum"}, {70_010, "cd", ""}, {70_020, "ef", ""}}, 4, false},
		"up to the end":         {[]dataSegment{{131_068, "ab", ""}, {131_070, "cd", ""}}, 1, false},
		"past the end":          {[]dataSegment{{131_060, "ab", ""}, {131_068, "abcdef", ""}}, 2, true},
		"an empty one past it":  {[]dataSegment{{8, "ab", ""}, {131_073, "", ""}}, 2, true},
		"negative":              {[]dataSegment{{8, "ab", ""}, {-1, "x", ""}}, 2, true},
		"passive in the middle": {[]dataSegment{{8, "ab", ""}, {0, "p", "passive"}, {10, "cd", ""}}, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			wasm := dataModule(c.segments, two)
			out, info := rewrite(t, wasm, meter.Options{Merge: true})
			if info.SegmentsBefore != len(c.segments) || info.SegmentsAfter != c.after {
				t.Errorf("%d segments of %d, want %d", info.SegmentsAfter, info.SegmentsBefore, c.after)
			}
			r := newRuntime(t, &ticker{})
			var ends [2]string
			for i, b := range [][]byte{wasm, out} {
				mod, err := r.InstantiateWithConfig(t.Context(), b, wazero.NewModuleConfig().WithName(""))
				if err != nil {
					ends[i] = "trap"
					continue
				}
				all, _ := mod.Memory().Read(0, mod.Memory().Size())
				ends[i] = string(all)
			}
			if ends[0] != ends[1] || (ends[0] == "trap") != c.traps {
				t.Errorf("another end (%d and %d bytes)", len(ends[0]), len(ends[1]))
			}
		})
	}
}

// Segments that are used by number stay as they are.
func TestDataInUseIsNotMerged(t *testing.T) {
	b := newBuilder().function("f", nil, nil, nil, []byte{0xfc, 9, 1, end}). // data.drop 1
											section(5, []byte{1, 0, 1}).section(12, []byte{2}).
											section(11, []byte{2, 0, 0x41, 0, end, 1, 'a', 0, 0x41, 1, end, 1, 'b'})
	if _, info := rewrite(t, b.bytes(), meter.Options{Merge: true}); info.SegmentsAfter != 2 {
		t.Errorf("%d segments", info.SegmentsAfter)
	}
}

func TestSegmentsAreCountedAnew(t *testing.T) {
	b := newBuilder().section(5, []byte{1, 0, 1}).section(12, []byte{2}).
		section(11, []byte{2, 0, 0x41, 0, end, 1, 'a', 0, 0x41, 1, end, 1, 'b'})
	out, info := rewrite(t, b.bytes(), meter.Options{Merge: true})
	if info.SegmentsAfter != 1 {
		t.Errorf("%d segments", info.SegmentsAfter)
	}
	instantiate(t, newRuntime(t, &ticker{}), out)
}
