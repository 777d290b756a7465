package meter

// Value types, as far as they matter here. A reference of any kind is kindRef.
const (
	kindI32  = 0x7f
	kindI64  = 0x7e
	kindF32  = 0x7d
	kindF64  = 0x7c
	kindV128 = 0x7b
	kindRef  = 0x70

	formFunc = 0x60
	formRec  = 0x4e

	// maxArity of parameters, and of results, as in every browser.
	maxArity = 1000
)

// signature of a function type: where its parameters lie in module.kinds.
type signature struct {
	first           uint32
	params, results uint16
}

func (s signature) arity() int32 { return int32(s.params) + int32(s.results) }

// valueType reads a value type.
func (m *module) valueType(r *reader) byte {
	at := r.pos
	switch t := r.u8(); t {
	case kindI32, kindI64, kindF32, kindF64, kindV128:
		return t
	case 0x70, 0x6f, 0x69: // funcref, externref, exnref
		return kindRef
	case 0x63, 0x64: // (ref null ht), (ref ht)
		// In the type section itself a type may come later; the compiler looks.
		if i := r.s32(); i >= int64(len(m.types)) && m.typed {
			r.fail(malformed(at, "names type %d of %d", i, len(m.types)))
		}
		return kindRef
	default:
		if r.err == nil {
			r.fail(refused(at, "uses a value type (%#x) that does not run here", t))
		}
		return 0
	}
}

func (m *module) readTypes(r *reader) error {
	m.typeEntries = r.count()
	m.typesAt = r.pos
	for n := m.typeEntries; n > 0 && r.err == nil; n-- {
		if r.more() && r.b[r.pos] == formRec {
			r.u8()
			for k := r.count(); k > 0 && r.err == nil; k-- {
				m.readType(r)
			}
			continue
		}
		m.readType(r)
	}
	m.typed = true
	m.set(secType, r.b[m.typesAt:r.end])
	return r.done()
}

func (m *module) readType(r *reader) {
	at := r.pos
	if form := r.u8(); form != formFunc {
		r.fail(refused(at, "uses a type (form %#x) that does not run here", form))
		return
	}
	s := signature{first: uint32(len(m.kinds))}
	params := m.readKinds(r, true)
	s.params, s.results = uint16(params), uint16(m.readKinds(r, false))
	m.types = append(m.types, s)
}

func (m *module) readKinds(r *reader, keep bool) int {
	at := r.pos
	n := r.count()
	if n > maxArity {
		r.fail(refused(at, "has a function type with %d parameters or results; %d are the most", n, maxArity))
		return 0
	}
	for range n {
		k := m.valueType(r)
		if keep {
			m.kinds = append(m.kinds, k)
		}
	}
	return n
}

// typeIndex reads and checks the index of a function type.
func (m *module) typeIndex(r *reader) signature {
	at := r.pos
	i := r.u32()
	if int(i) >= len(m.types) {
		if r.err == nil {
			r.fail(malformed(at, "names type %d of %d", i, len(m.types)))
		}
		return signature{}
	}
	return m.types[i]
}

// blockType reads the type of a block and gives the number of its values.
func (m *module) blockType(r *reader) (params, results int32) {
	at := r.pos
	if r.more() {
		switch r.b[r.pos] {
		case 0x40:
			r.pos++
			return 0, 0
		case kindI32, kindI64, kindF32, kindF64, kindV128, 0x70, 0x6f, 0x69, 0x63, 0x64:
			m.valueType(r)
			return 0, 1
		}
	}
	i := r.s32()
	if i < 0 || i >= int64(len(m.types)) {
		if r.err == nil {
			r.fail(malformed(at, "has a block whose type %d is unknown", i))
		}
		return 0, 0
	}
	return int32(m.types[i].params), int32(m.types[i].results)
}
