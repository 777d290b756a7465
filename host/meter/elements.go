package meter

// readElements moves the functions' indices in element segments.
func (m *module) readElements(r *reader) error {
	at := r.pos
	n := r.count()
	if n > maxSegments {
		return refused(at, "has %d element segments; %d are the most", n, maxSegments)
	}
	m.elements = n
	var all []elements
	entries := 0
	out := appendU32(make([]byte, 0, r.end-r.pos+(r.end-r.pos)/8+8), uint32(n))
	for ; n > 0 && r.err == nil; n-- {
		at := r.pos
		flags := r.u32()
		if flags > 7 && r.err == nil {
			return malformed(at, "has an element segment of unknown kind %d", flags)
		}
		exprs := flags&4 != 0
		e := elements{active: flags&1 == 0, exprs: exprs, offset: none, at: [2]int{len(out), 0}}
		out = appendU32(out, flags)
		if e.active {
			if flags&2 != 0 {
				e.table = m.tableIndex(r)
				out = appendU32(out, e.table)
			}
			var value int32
			var literal bool
			if out, value, literal = m.constExpr(r, out); literal {
				e.offset = int64(uint32(value))
			}
		}
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
		if entries += k; entries > maxElements {
			r.fail(refused(at, "has more than %d elements in its segments", maxElements))
		}
		out = appendU32(out, uint32(k))
		for ; k > 0 && r.err == nil; k-- {
			if exprs {
				out, _, _ = m.constExpr(r, out)
			} else {
				f := m.moved(m.funcIndex(r))
				out = appendU32(out, f)
				if e.active && m.opts.LazyTables > 0 && len(e.funcs) <= mostLazy {
					e.funcs = append(e.funcs, f)
				}
			}
		}
		e.at[1] = len(out)
		if len(all) <= mostLazy {
			all = append(all, e)
		}
	}
	if err := r.done(); err != nil {
		return err
	}
	m.set(secElement, m.lazyTables(out, all))
	return nil
}
