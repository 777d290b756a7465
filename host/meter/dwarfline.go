package meter

// The opcodes of a new table: one byte for a step of -5 to 8 lines and up to 16
// bytes of code.
const (
	lineBase   = -5
	lineRange  = 14
	opcodeBase = 13
)

// lineRow is one of a table of lines.
type lineRow struct {
	address      uint64
	file, column uint64
	line         int64
}

// table copies a table of lines and gives its new offset.
func (d *debug) table(offset uint32) (uint32, bool) {
	if to, ok := d.tables[offset]; ok {
		return to, true
	}
	r := at(&d.line, offset)
	body := r.sub(r.u32le())
	if !d.spend(body.end - body.pos) {
		return 0, false
	}
	version := body.u16()
	header := body.sub(body.u32le())
	if version < 2 || version > 4 || body.err != nil {
		return 0, false
	}
	start := len(d.newLine)
	d.tables[offset] = uint32(start)
	t := lineTable{d: d, step: uint64(header.u8())}
	if version == 4 {
		header.u8()
	}
	header.u8() // default_is_stmt
	t.base, t.span, t.first = int64(int8(header.u8())), int64(header.u8()), header.u8()
	if t.first == 0 || t.span == 0 {
		return 0, false
	}
	t.operands = header.bytes(uint32(t.first - 1))
	files := header.rest() // folders and files stay as they are
	if header.err != nil {
		return 0, false
	}
	out := append32(d.newLine, 0)
	out = append16(out, 4)
	out = append32(out, uint32(6+opcodeBase-1+len(files)))
	out = append(out, 1, 1, 1, byte(0x100+lineBase), lineRange, opcodeBase)
	out = append(out, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1)
	out = append(out, files...)
	t.out = out
	if !t.run(&body) {
		return 0, false
	}
	put32(t.out[start:], uint32(len(t.out)-start-4))
	d.newLine = t.out
	return uint32(start), true
}

// lineTable runs the program of an old table and writes that of the new.
type lineTable struct {
	d          *debug
	step       uint64
	base, span int64
	first      byte
	operands   []byte

	row, last lineRow // last is the one written, with its new address
	open      bool    // within a sequence
	out       []byte
}

func (t *lineTable) run(r *reader) bool {
	fresh := lineRow{file: 1, line: 1}
	t.row = fresh
	for r.more() {
		op := r.u8()
		if op >= t.first {
			k := int64(op - t.first)
			t.row.line += t.base + k%t.span
			t.row.address += t.step * uint64(k/t.span)
			t.write()
			continue
		}
		switch op {
		case 0:
			ext := r.sub(uint32(min(r.uleb(), 1<<32-1)))
			switch ext.u8() {
			case 1: // end of a sequence
				t.close()
				t.row = fresh
			case 2:
				t.row.address = uint64(ext.u32le())
			}
		case 1:
			t.write()
		case 2:
			t.row.address += t.step * r.uleb()
		case 3:
			t.row.line += r.sleb()
		case 4:
			t.row.file = r.uleb()
		case 5:
			t.row.column = r.uleb()
		case 8:
			t.row.address += t.step * uint64(int64(255-t.first)/t.span)
		case 9:
			t.row.address += uint64(r.u16())
		case 6, 7, 10, 11: // marks that no trace shows
		default:
			for k := t.operands[op-1]; k > 0; k-- {
				r.uleb()
			}
		}
	}
	t.close()
	return r.err == nil
}

// write adds a row. One whose code is gone is left out, and so is all that would
// come before what is written already.
func (t *lineTable) write() {
	to, ok := t.d.moved(t.row.address)
	if !ok {
		return
	}
	if t.open && uint64(to) < t.last.address {
		t.end(t.last.address)
	}
	if !t.open {
		t.out = append(t.out, 0, 5, 2)
		t.out = append32(t.out, to)
		t.last = lineRow{address: uint64(to), file: 1, line: 1}
		t.open = true
	}
	now := t.row
	now.address = uint64(to)
	if now.file != t.last.file {
		t.out = appendU32(append(t.out, 4), uint32(now.file))
	}
	if now.column != t.last.column {
		t.out = appendU32(append(t.out, 5), uint32(now.column))
	}
	step, lines := now.address-t.last.address, now.line-t.last.line
	if lines < lineBase || lines >= lineBase+lineRange {
		t.out = appendS64(append(t.out, 3), lines)
		lines = 0
	}
	if step > 16 {
		t.out = appendU32(append(t.out, 2), uint32(step))
		step = 0
	}
	t.out = append(t.out, byte(lines-lineBase+lineRange*int64(step)+opcodeBase))
	t.last = now
}

// close ends the sequence where the old one does.
func (t *lineTable) close() {
	if !t.open {
		return
	}
	to, ok := t.d.moved(t.row.address)
	if !ok {
		to = uint32(t.last.address)
	}
	t.end(max(uint64(to), t.last.address))
}

func (t *lineTable) end(address uint64) {
	t.out = appendU32(append(t.out, 2), uint32(address-t.last.address))
	t.out = append(t.out, 0, 1, 1)
	t.open = false
}
