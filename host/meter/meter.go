package meter

import (
	"errors"
	"strings"
)

// What a rewritten module imports and exports beside its own.
const (
	// ImportModule and ImportTick name the function () -> i32 that a rewritten
	// module calls when its budget is used up. It returns the new budget, from
	// Info.MinRefill upwards, or does not return: a panic of a host function ends
	// the call.
	ImportModule = "mqrun:meter"
	ImportTick   = "tick"
	// ExportBudget names the budget, a mutable i32: instructions until the next
	// tick. It is below zero at the tick, and zero in a fresh instance.
	ExportBudget = "mqrun:budget"
)

// Options of Rewrite. The zero value is usable.
type Options struct {
	// TableMax is the most elements that a table may grow to. A module whose
	// table starts larger is refused. 0 = 10,000,000.
	TableMax uint32
	// MaxFunctions of one module. 0 = 1,000,000.
	MaxFunctions int
	// MaxEffort bounds what compiling may take: the sum, over the functions, of
	// b*(b + 16*l + l*l/16) for b basic blocks and l locals. wazero's compiler takes
	// up to about 25 ns for each, and cannot be interrupted. 0 = 1e9, which is
	// thirty Go guests of 3 MB.
	MaxEffort int64
	// LazyTables lets tables of so many functions or more be filled when they are
	// called through: an instance is smaller and starts faster. The result needs
	// reference types. 0 = none.
	LazyTables int
	// Merge joins neighbouring data segments where nobody can tell.
	Merge bool
}

// Info says what was done.
type Info struct {
	Loops   int // found
	Twice   int // of them, written twice
	Entries int // functions that are charged when they are called
	Checks  int // charges within long straight code
	Bulk    int // operations on memory and tables that go through a helper
	Lazy    int // tables that are filled late
	// MinRefill is the least that tick may give to this module, at most the
	// constant of that name.
	MinRefill int32
	// Effort of compiling, as Options.MaxEffort counts it.
	Effort int64
	// Data segments in the module and after merging.
	SegmentsBefore, SegmentsAfter int
	// Lines: DWARF is there and was carried over, so traps show source lines.
	Lines bool
	// LinesLost says why DWARF that is there was left out.
	LinesLost string
}

// Rewrite returns the module with metering. The bytes given are not changed nor
// kept. The error is always an *Error. What comes back is not validated: an
// invalid module may be refused here or stay invalid, but it never becomes valid.
func Rewrite(wasm []byte, o Options) ([]byte, *Info, error) {
	if o.TableMax == 0 {
		o.TableMax = 10_000_000
	}
	if o.MaxFunctions == 0 {
		o.MaxFunctions = 1_000_000
	}
	if o.MaxEffort == 0 {
		o.MaxEffort = 1_000_000_000
	}
	sections, err := split(wasm)
	if err != nil {
		return nil, nil, err
	}
	m := &module{src: wasm, opts: o, memoryMin: none, dataCount: none}
	for _, s := range sections {
		m.dwarf = m.dwarf || s.name == ".debug_line"
	}
	err = m.read(sections)
	if errors.Is(err, errTableInUse) {
		m = &module{src: wasm, opts: o, memoryMin: none, dataCount: none, dwarf: m.dwarf, stay: true}
		err = m.read(sections)
	}
	if err != nil {
		return nil, nil, err
	}
	return m.write(sections), &m.info, nil
}

// write puts the sections together again, and those that were not there.
func (m *module) write(sections []section) []byte {
	body := map[byte]func() []byte{
		secType: m.typeSection, secImport: m.importSection, secFunction: m.functionSection,
		secGlobal: m.globalSection, secExport: m.exportSection, secCode: m.codeSection,
	}
	out := make([]byte, 0, len(m.src)+len(m.out[secCode])/4+8192)
	out = append(out, m.src[:8]...)
	next := uint8(1) // rank of the next section that has to come
	upTo := func(last uint8) {
		for ; next <= last; next++ {
			id := byRank[next]
			switch f := body[id]; {
			case f != nil:
				out = appendSection(out, id, f())
			case id == secDataCount && m.dataCount >= 0:
				out = appendSection(out, id, appendU32(nil, uint32(m.info.SegmentsAfter)))
			case m.changed[id]:
				out = appendSection(out, id, m.out[id])
			}
		}
	}
	for _, s := range sections {
		switch {
		case s.id != secCustom:
			upTo(rank[s.id] - 1)
			if !m.changed[s.id] && body[s.id] == nil && s.id != secDataCount {
				out = appendSection(out, s.id, m.src[s.pos:s.end])
				next = rank[s.id] + 1
				continue
			}
			upTo(rank[s.id])
		case s.name == "name":
			upTo(rank[secData]) // it has to come after all
			if b := m.nameSection(s); b != nil {
				out = appendSection(out, secCustom, b)
			}
		case strings.HasPrefix(s.name, ".debug_"):
			if m.dwarf {
				m.dwarf = false
				lines, lost := m.lines(sections)
				out = append(out, lines...)
				m.info.Lines, m.info.LinesLost = lost == "", lost
			}
		case strings.HasPrefix(s.name, "reloc."),
			strings.HasPrefix(s.name, "metadata.code."), s.name == "linking":
			// They point into the code as it was.
		default:
			b := appendName(nil, s.name)
			out = appendSection(out, secCustom, append(b, m.src[s.pos:s.end]...))
		}
	}
	upTo(rank[secData])
	return out
}
