package meter

import "sort"

// Source lines are kept by writing new DWARF, with what a trace shows and nothing
// else: units, what is inlined where, and the tables of lines, at the addresses
// that the code has now. An address is an offset into the code section.
//
// The rest of DWARF is worth no trust: on every trap wazero walks through all of
// it, whatever a guest has put there.

// maxNesting of entries in .debug_info.
const maxNesting = 256

// debug reads the sections of one module and writes the new ones.
type debug struct {
	m                          *module
	info, abbrev, line, ranges reader
	strings                    reader
	work                       int // bytes that may still be read

	abbrevs map[uint32]map[uint32]abbreviation
	tables  map[uint32]uint32 // of lines: offset before and now

	newInfo, newLine, newRanges []byte
	shift                       int // of new addresses: the number of bodies comes first
	limit                       int // of old addresses
}

// lines gives the new sections, or says why there are none.
func (m *module) lines(sections []section) (out []byte, lost string) {
	d := &debug{m: m, abbrevs: map[uint32]map[uint32]abbreviation{}, tables: map[uint32]uint32{}}
	whole := map[string]*reader{
		".debug_info": &d.info, ".debug_abbrev": &d.abbrev, ".debug_line": &d.line,
		".debug_ranges": &d.ranges, ".debug_str": &d.strings,
	}
	for _, s := range sections {
		if r := whole[s.name]; r != nil && s.id == secCustom {
			*r = reader{b: m.src, pos: s.pos, end: s.end}
			// Every byte is read once, unless units share abbreviations.
			d.work += 8 * (s.end - s.pos)
		}
		if s.id == secCode {
			d.limit = s.end - s.pos
			m.codeAt = s.pos
		}
	}
	d.work += 1 << 16
	d.shift = sizeU32(m.defined + uint32(len(m.helpers.bodies)))
	for d.info.more() {
		if lost := d.unit(); lost != "" {
			return nil, lost
		}
	}
	add := func(name string, body []byte) {
		out = appendSection(out, secCustom, append(appendName(nil, name), body...))
	}
	add(".debug_abbrev", newAbbrev)
	add(".debug_info", d.newInfo)
	add(".debug_line", d.newLine)
	add(".debug_ranges", d.newRanges)
	return out, ""
}

// spend counts bytes read: hostile DWARF has them read over and over.
func (d *debug) spend(n int) bool {
	d.work -= n
	return d.work >= 0
}

// at is a reader from an offset into a section.
func at(r *reader, offset uint32) reader {
	return reader{b: r.b, pos: min(r.pos+int(offset), r.end), end: r.end}
}

// moved gives the new place of an address; false when it is none: what the linker
// has thrown away has 0 or -1.
func (d *debug) moved(address uint64) (uint32, bool) {
	if address == 0 || address > uint64(d.limit) {
		return 0, false
	}
	moves := d.m.code.scan.moves
	pos := d.m.codeAt + int(address)
	i := sort.Search(len(moves), func(i int) bool { return moves[i].from > pos })
	if i == 0 {
		return 0, false
	}
	return uint32(moves[i-1].to + pos - moves[i-1].from + d.shift), true
}

func (r *reader) u16() uint16 { return uint16(r.u8()) | uint16(r.u8())<<8 }

func (r *reader) u32le() uint32 { return uint32(r.u16()) | uint32(r.u16())<<16 }

// uleb is a LEB128 of any length; what does not fit is lost.
func (r *reader) uleb() uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		c := r.u8()
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		if c < 0x80 {
			return v
		}
	}
}

func (r *reader) sleb() int64 {
	var v int64
	for shift := uint(0); ; {
		c := r.u8()
		if shift < 64 {
			v |= int64(c&0x7f) << shift
		}
		shift += 7
		if c < 0x80 {
			if shift < 64 && c&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
}

// text is a string up to a zero byte.
func (r *reader) text() []byte {
	from := r.pos
	for r.u8() != 0 {
	}
	return r.b[from:max(from, r.pos-1)]
}

func append16(b []byte, v uint16) []byte { return append(b, byte(v), byte(v>>8)) }

func append32(b []byte, v uint32) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

func put32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}
