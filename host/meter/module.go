package meter

// module is what is known of one while it is rewritten.
type module struct {
	src  []byte
	opts Options
	info Info
	code rewriter
	stay bool // no table is filled late

	kinds                []byte // parameters of all types
	types                []signature
	typeEntries, typesAt int      // groups count once
	typed                bool     // types is complete
	funcs                []uint32 // the type of each function, imported ones first

	importedFuncs, defined       uint32
	imports, ownGlobals, exports int
	globals                      uint32
	tables                       []table
	tags                         []signature
	memory                       bool
	memoryMin                    int64 // bytes of a memory of its own, else -1
	elements                     int
	data                         int
	dataCount                    int // declared, or -1
	dataUsed                     bool
	dwarf                        bool // there are lines to keep
	codeAt                       int  // where the code section begins

	out     [14][]byte // new bodies by section id
	changed [14]bool   // out holds one
	helpers helpers
}

// table: its reference type as written, and how it is filled: see lazy.go.
type table struct {
	ref    []byte
	lo, hi uint32 // declared minimum, and what it may grow to
	entry  [2]int // where it lies in the table section
	fixed  bool   // it stays as it is
	lazy   bool
	first  uint32   // its first element that is filled
	filled int      // how many are, at most
	funcs  []uint32 // from there, each plus one
	fill   uint32   // the function that does it
}

// read goes through every section but the custom ones, in the module's order.
func (m *module) read(sections []section) error {
	for _, s := range sections {
		m.typed = m.typed || rank[s.id] > rank[secType]
		r := &reader{b: m.src, pos: s.pos, end: s.end}
		var err error
		switch s.id {
		case secType:
			err = m.readTypes(r)
		case secImport:
			err = m.readImports(r)
		case secFunction:
			err = m.readFunctions(r)
		case secTable:
			err = m.readTables(r)
		case secMemory:
			err = m.readMemory(r)
		case secTag:
			err = m.readTags(r)
		case secGlobal:
			err = m.readGlobals(r)
		case secExport:
			err = m.readExports(r)
		case secStart:
			m.set(secStart, appendU32(nil, m.moved(m.funcIndex(r))))
			err = r.done()
		case secElement:
			err = m.readElements(r)
		case secDataCount:
			m.dataCount = int(r.u32())
			err = r.done()
		case secCode:
			err = m.readCode(r)
		case secData:
			err = m.readData(r)
		}
		if err != nil {
			return err
		}
	}
	if m.helpers.bodies == nil {
		m.helpers.start(m)
	}
	switch {
	case m.code.bodies != m.defined:
		return malformed(len(m.src), "declares %d functions and has the code of %d", m.defined, m.code.bodies)
	case m.dataCount >= 0 && m.dataCount != m.data:
		return malformed(len(m.src), "announces %d data segments and has %d", m.dataCount, m.data)
	}
	return nil
}

func (m *module) set(id byte, body []byte) {
	m.out[id], m.changed[id] = body, true
}

func (m *module) readFunctions(r *reader) error {
	at := r.pos
	n := r.count()
	if n > m.opts.MaxFunctions {
		return refused(at, "has %d functions; %d are the most", n, m.opts.MaxFunctions)
	}
	m.defined = uint32(n)
	for range n {
		at := r.pos
		i := r.u32()
		if int(i) >= len(m.types) && r.err == nil {
			r.fail(malformed(at, "names type %d of %d", i, len(m.types)))
		}
		if r.err != nil {
			break
		}
		m.funcs = append(m.funcs, i)
	}
	return r.done()
}

func (m *module) readTags(r *reader) error {
	for n := r.count(); n > 0 && r.err == nil; n-- {
		m.readTag(r)
	}
	return r.done()
}

func (m *module) readTag(r *reader) {
	at := r.pos
	if r.u8() != 0 {
		r.fail(malformed(at, "has a tag that is no exception"))
	}
	m.tags = append(m.tags, m.typeIndex(r))
}
