package meter

// Kinds of imports and exports.
const (
	externFunc   = 0
	externTable  = 1
	externMemory = 2
	externGlobal = 3
	externTag    = 4
)

// readImports reads the imports and adds tick after them: it becomes the last
// imported function, so only functions of the module's own move, by one.
func (m *module) readImports(r *reader) error {
	n := r.count()
	entries := r.pos
	for range n {
		at := r.pos
		if r.name() == ImportModule && r.err == nil {
			return refused(at, "imports from %q, which is reserved", ImportModule)
		}
		r.name()
		at = r.pos
		switch kind := r.u8(); kind {
		case externFunc:
			at := r.pos
			i := r.u32()
			if int(i) >= len(m.types) && r.err == nil {
				return malformed(at, "names type %d of %d", i, len(m.types))
			}
			m.funcs = append(m.funcs, i)
			m.importedFuncs++
		case externTable:
			m.readTable(r, nil)
		case externMemory:
			m.readLimits(r)
		case externGlobal:
			m.readGlobalType(r)
			m.globals++
		case externTag:
			m.readTag(r)
		default:
			if r.err == nil {
				return malformed(at, "imports something of unknown kind %d", kind)
			}
		}
		if r.err != nil {
			return r.err
		}
	}
	if err := r.done(); err != nil {
		return err
	}
	m.set(secImport, m.src[entries:r.end])
	m.imports = n
	return nil
}

// importSection is what was imported and tick.
func (m *module) importSection() []byte {
	old := m.out[secImport]
	b := make([]byte, 0, len(old)+40)
	b = appendU32(b, uint32(m.imports)+1)
	b = append(b, old...)
	b = appendName(b, ImportModule)
	b = appendName(b, ImportTick)
	b = append(b, externFunc)
	return appendU32(b, m.helpers.tickType)
}
