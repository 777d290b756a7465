package meter

// abbreviations reads the table at an offset, once.
func (d *debug) abbreviations(offset uint32) (map[uint32]abbreviation, bool) {
	if t, ok := d.abbrevs[offset]; ok {
		return t, true
	}
	t := map[uint32]abbreviation{}
	r := at(&d.abbrev, offset)
	from := r.pos
	for r.more() {
		code := r.uleb()
		if code == 0 {
			break
		}
		a := abbreviation{tag: r.uleb(), children: r.u8() != 0}
		for r.more() {
			attr := attribute{name: r.uleb(), form: r.uleb()}
			if attr.name == 0 && attr.form == 0 {
				break
			}
			a.attrs = append(a.attrs, attr)
		}
		t[uint32(code)] = a
	}
	d.abbrevs[offset] = t
	return t, r.err == nil && d.spend(r.pos-from)
}

// entry reads the attributes of one; false: a form is not known.
func (d *debug) entry(r *reader, a *abbreviation) (entry, bool) {
	var e entry
	if !d.spend(len(a.attrs)) {
		return e, false
	}
	for _, attr := range a.attrs {
		form := attr.form
		for k := 0; form == 0x16 && k < 2; k++ { // written down here
			form = r.uleb()
		}
		v, text, ok := d.value(r, form)
		if !ok {
			return e, false
		}
		switch attr.name {
		case attrStmtList:
			e.stmt, e.hasStmt = v, true
		case attrLowPC:
			e.low, e.hasLow = v, true
		case attrHighPC:
			e.high, e.highOffset = v, form != formAddr
		case attrRanges:
			e.ranges, e.hasRanges = v, true
		case attrCallFile:
			e.file = v
		case attrCallLine:
			e.line = v
		case attrCallColumn:
			e.column = v
		case attrCompDir:
			if form == formStrp && a.tag == tagUnit {
				s := at(&d.strings, uint32(v))
				text = s.text()
				if !d.spend(len(text)) {
					return e, false
				}
			}
			e.dir = text
		}
	}
	return e, r.err == nil
}

// value reads one of a form of DWARF 4. Blocks are skipped.
func (d *debug) value(r *reader, form uint64) (v uint64, text []byte, ok bool) {
	switch form {
	case formAddr, 0x06, formStrp, 0x10, 0x13, formSecOffset: // four bytes
		v = uint64(r.u32le())
	case 0x03: // blocks
		r.skip(int(r.u16()))
	case 0x04:
		r.bytes(r.u32le())
	case 0x09, 0x18:
		n := r.uleb()
		r.bytes(uint32(min(n, 1<<32-1)))
	case 0x0a:
		r.skip(int(r.u8()))
	case 0x05, 0x12:
		v = uint64(r.u16())
	case 0x07, 0x14, 0x20:
		v = uint64(r.u32le()) | uint64(r.u32le())<<32
	case formString:
		text = r.text()
	case 0x0b, 0x0c, 0x11:
		v = uint64(r.u8())
	case 0x0d:
		v = uint64(r.sleb())
	case formUdata, 0x15:
		v = r.uleb()
	case 0x19: // it is there
		v = 1
	default:
		return 0, nil, false
	}
	return v, text, r.err == nil
}
