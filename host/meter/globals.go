package meter

// readGlobals copies the globals and adds the budget after them, so that no
// index of the module's own moves.
func (m *module) readGlobals(r *reader) error {
	at := r.pos
	n := r.count()
	if n > maxGlobals {
		return refused(at, "has %d globals; %d are the most", n, maxGlobals)
	}
	m.ownGlobals = n
	out := make([]byte, 0, r.end-r.pos+16)
	for ; n > 0 && r.err == nil; n-- {
		from := r.pos
		m.readGlobalType(r)
		out = append(out, r.b[from:r.pos]...)
		out, _, _ = m.constExpr(r, out)
		// wazero lets an initial value use the globals before it.
		m.globals++
	}
	m.set(secGlobal, out)
	return r.done()
}

func (m *module) readGlobalType(r *reader) {
	m.valueType(r)
	at := r.pos
	if r.u8() > 1 {
		r.fail(malformed(at, "has a global that is neither constant nor variable"))
	}
}

// globalSection is the module's globals and the budget: an i32 that starts at
// zero, so the first check of all calls tick.
func (m *module) globalSection() []byte {
	old := m.out[secGlobal]
	b := make([]byte, 0, len(old)+16)
	b = appendU32(b, uint32(m.ownGlobals)+1)
	b = append(b, old...)
	return append(b, kindI32, 1, codeI32Const, 0, codeEnd)
}

// readExports moves the functions' indices.
func (m *module) readExports(r *reader) error {
	n := r.count()
	m.exports = n
	out := make([]byte, 0, r.end-r.pos+n/8+32)
	for ; n > 0 && r.err == nil; n-- {
		from := r.pos
		name := r.name()
		if name == ExportBudget && r.err == nil {
			return refused(from, "exports %q, which is reserved", name)
		}
		at := r.pos
		kind := r.u8()
		out = append(out, r.b[from:r.pos]...)
		var i uint32
		switch kind {
		case externFunc:
			i = m.moved(m.funcIndex(r))
		case externTable:
			if i = m.tableIndex(r); r.err == nil {
				m.tables[i].fixed = true
			}
		case externGlobal:
			i = m.globalIndex(r)
		case externMemory, externTag:
			i = r.u32()
		default:
			if r.err == nil {
				return malformed(at, "exports something of unknown kind %d", kind)
			}
		}
		out = appendU32(out, i)
	}
	m.set(secExport, out)
	return r.done()
}

func (m *module) exportSection() []byte {
	old := m.out[secExport]
	b := make([]byte, 0, len(old)+32)
	b = appendU32(b, uint32(m.exports)+1)
	b = append(b, old...)
	b = appendName(b, ExportBudget)
	b = append(b, externGlobal)
	return appendU32(b, m.globals)
}
