package meter

const (
	tagUnit    = 0x11
	tagInlined = 0x1d

	attrStmtList   = 0x10
	attrLowPC      = 0x11
	attrHighPC     = 0x12
	attrCompDir    = 0x1b
	attrRanges     = 0x55
	attrCallColumn = 0x57
	attrCallFile   = 0x58
	attrCallLine   = 0x59

	formAddr      = 0x01
	formString    = 0x08
	formStrp      = 0x0e
	formUdata     = 0x0f
	formSecOffset = 0x17
)

// newAbbrev: 1 is a unit, 2 and 3 what is inlined, with and without more in it.
var newAbbrev = []byte{
	1, tagUnit, 1, attrStmtList, formSecOffset, attrCompDir, formString, attrLowPC, formAddr, attrRanges, formSecOffset, 0, 0,
	2, tagInlined, 1, attrRanges, formSecOffset, attrCallFile, formUdata, attrCallLine, formUdata, attrCallColumn, formUdata, 0, 0,
	3, tagInlined, 0, attrRanges, formSecOffset, attrCallFile, formUdata, attrCallLine, formUdata, attrCallColumn, formUdata, 0, 0,
	0,
}

type abbreviation struct {
	tag      uint64
	children bool
	attrs    []attribute
}

type attribute struct{ name, form uint64 }

// entry is what matters of one.
type entry struct {
	low, high, stmt, ranges                uint64
	highOffset, hasStmt, hasRanges, hasLow bool
	file, line, column                     uint64
	dir                                    []byte
}

// unit reads one of .debug_info.
func (d *debug) unit() string {
	size := d.info.u32le()
	body := d.info.sub(size)
	version := body.u16()
	offset := body.u32le()
	switch addr := body.u8(); {
	case body.err != nil:
		return "its debug information is damaged"
	case version < 2 || version > 4:
		return "its debug information is DWARF 5, of which wazero shows nothing; compile with -gdwarf-4"
	case addr != 4:
		return "its debug information is not for 32 bits"
	}
	table, ok := d.abbreviations(offset)
	if !ok {
		return "its debug information is damaged"
	}
	start := len(d.newInfo)
	d.newInfo = append32(d.newInfo, 0)
	d.newInfo = append16(d.newInfo, 4)
	d.newInfo = append(append32(d.newInfo, 0), 4)
	if lost := d.entries(&body, table); lost != "" {
		return lost
	}
	put32(d.newInfo[start:], uint32(len(d.newInfo)-start-4))
	return ""
}

// entries copies the unit and what is inlined, as a tree. open says for every
// entry around whether it was copied.
func (d *debug) entries(r *reader, table map[uint32]abbreviation) string {
	var open []bool
	var unit entry
	for r.more() {
		code := r.uleb()
		if code == 0 {
			if len(open) == 0 {
				break // padding
			}
			if open[len(open)-1] {
				d.newInfo = append(d.newInfo, 0)
			}
			open = open[:len(open)-1]
			continue
		}
		a, ok := table[uint32(code)]
		if !ok || len(open) > maxNesting {
			return "its debug information is damaged"
		}
		e, ok := d.entry(r, &a)
		if !ok {
			return "its debug information is of a form that is not read"
		}
		copied := false
		switch a.tag {
		case tagUnit:
			unit = e
			copied = d.copyUnit(&e)
			if !copied {
				return "its debug information is damaged or does not end"
			}
		case tagInlined:
			var ranges uint32
			if ranges, copied = d.copyRanges(&unit, &e); copied {
				kind := byte(3)
				if a.children {
					kind = 2
				}
				d.newInfo = append32(append(d.newInfo, kind), ranges)
				for _, v := range []uint64{e.file, e.line, e.column} {
					d.newInfo = appendU32(d.newInfo, uint32(v))
				}
			}
		}
		if d.work < 0 {
			return "its debug information does not end"
		}
		if a.children {
			open = append(open, copied)
		}
	}
	for ; len(open) > 0; open = open[:len(open)-1] {
		if open[len(open)-1] {
			d.newInfo = append(d.newInfo, 0)
		}
	}
	if r.err != nil {
		return "its debug information is damaged"
	}
	return ""
}

func (d *debug) copyUnit(e *entry) bool {
	var stmt uint32
	if e.hasStmt {
		var ok bool
		if stmt, ok = d.table(uint32(e.stmt)); !ok {
			return false
		}
	}
	ranges, ok := d.copyRanges(e, e)
	if !ok { // it has no code
		ranges = uint32(len(d.newRanges))
		d.newRanges = append32(append32(d.newRanges, 0), 0)
	}
	d.newInfo = append(d.newInfo, 1)
	d.newInfo = append32(d.newInfo, stmt)
	d.newInfo = append(append(d.newInfo, e.dir[:min(len(e.dir), 4096)]...), 0)
	d.newInfo = append32(d.newInfo, 0)
	d.newInfo = append32(d.newInfo, ranges)
	return d.spend(len(e.dir))
}

// copyRanges writes the addresses of an entry, and is false when it has none.
func (d *debug) copyRanges(unit, e *entry) (uint32, bool) {
	start := uint32(len(d.newRanges))
	add := func(low, high uint64) {
		from, ok := d.moved(low)
		to, ok2 := d.moved(high)
		if ok && ok2 && from < to {
			d.newRanges = append32(append32(d.newRanges, from), to)
		}
	}
	if e.hasRanges {
		base := unit.low
		r := at(&d.ranges, uint32(e.ranges))
		for r.more() && d.spend(8) {
			low, high := uint64(r.u32le()), uint64(r.u32le())
			switch {
			case low == 0 && high == 0:
				r.pos = r.end
			case low == 1<<32-1: // what follows counts from here
				base = high
			default:
				add(base+low, base+high)
			}
		}
	} else if e.hasLow {
		high := e.high
		if e.highOffset {
			high += e.low
		}
		add(e.low, high)
	}
	if uint32(len(d.newRanges)) == start {
		return 0, false
	}
	d.newRanges = append32(append32(d.newRanges, 0), 0)
	return start, true
}
