package meter

// readElements moves the functions' indices in element segments.
func (m *module) readElements(r *reader) error {
	n := r.count()
	m.elements = n
	out := appendU32(make([]byte, 0, r.end-r.pos+(r.end-r.pos)/8+8), uint32(n))
	for ; n > 0 && r.err == nil; n-- {
		at := r.pos
		flags := r.u32()
		if flags > 7 && r.err == nil {
			return malformed(at, "has an element segment of unknown kind %d", flags)
		}
		out = appendU32(out, flags)
		if flags&1 == 0 { // active
			if flags&2 != 0 {
				out = appendU32(out, m.tableIndex(r))
			}
			out, _, _ = m.constExpr(r, out)
		}
		exprs := flags&4 != 0
		if flags&3 != 0 { // its type is written down
			from := r.pos
			if exprs {
				m.valueType(r)
			} else if at := r.pos; r.u8() != 0 {
				r.fail(malformed(at, "has an element segment of something else than functions"))
			}
			out = append(out, r.b[from:r.pos]...)
		}
		k := r.count()
		out = appendU32(out, uint32(k))
		for ; k > 0 && r.err == nil; k-- {
			if exprs {
				out, _, _ = m.constExpr(r, out)
			} else {
				out = appendU32(out, m.moved(m.funcIndex(r)))
			}
		}
	}
	m.set(secElement, out)
	return r.done()
}
