package meter

// helpers are the functions that are added behind the module's own.
type helpers struct {
	tickType uint32 // () -> i32
	voidType uint32 // () -> ()
	bulkType uint32 // (i32, i32, i32) -> ()
	first    uint32 // index of the first helper
	refill   uint32
	types    [][]byte // added ones
	typeAt   uint32   // index of the first of them
	typeOf   []uint32 // of each helper
	bodies   [][]byte
	names    []string
	known    map[helperKey]uint32
}

type helperKey struct {
	op   uint32 // of the prefix 0xfc
	a, b uint32 // its operands
}

// start adds the types that are always there, and refill.
func (h *helpers) start(m *module) {
	h.typeAt = uint32(len(m.types))
	h.first = uint32(len(m.funcs)) + 1
	h.tickType = h.addType(formFunc, 0, 1, kindI32)
	h.voidType = h.addType(formFunc, 0, 0)
	h.bulkType = h.addType(formFunc, 3, kindI32, kindI32, kindI32, 0)
	var c assembler
	c.call(m.importedFuncs)
	c.setGlobal(m.globals)
	h.refill = h.add("mqrun:refill", h.voidType, c.body())
}

func (h *helpers) addType(form ...byte) uint32 {
	h.types = append(h.types, form)
	return h.typeAt + uint32(len(h.types)) - 1
}

func (h *helpers) add(name string, typ uint32, body []byte) uint32 {
	h.typeOf = append(h.typeOf, typ)
	h.bodies = append(h.bodies, body)
	h.names = append(h.names, name)
	return h.first + uint32(len(h.bodies)) - 1
}

// of gives the helper for one bulk instruction with its operands.
func (h *helpers) of(m *module, k helperKey) uint32 {
	if i, ok := h.known[k]; ok {
		return i
	}
	var i uint32
	switch k.op {
	case miscMemoryCopy:
		i = h.add("mqrun:memory.copy", h.bulkType, m.memoryCopy())
	case miscMemoryFill:
		i = h.add("mqrun:memory.fill", h.bulkType, m.memoryFill())
	case miscMemoryInit:
		i = h.add("mqrun:memory.init", h.bulkType, m.memoryInit(k.a))
	case miscTableCopy:
		i = h.add("mqrun:table.copy", h.bulkType, m.tableCopy(k.a, k.b))
	case miscTableInit:
		i = h.add("mqrun:table.init", h.bulkType, m.tableInit(k.a, k.b))
	case miscTableFill:
		ref := m.tables[k.a].ref
		typ := append([]byte{formFunc, 3, kindI32}, ref...)
		i = h.add("mqrun:table.fill", h.addType(append(typ, kindI32, 0)...), m.tableFill(k.a))
	case miscTableGrow:
		ref := m.tables[k.a].ref
		typ := append([]byte{formFunc, 2}, ref...)
		i = h.add("mqrun:table.grow", h.addType(append(typ, kindI32, 1, kindI32)...), m.tableGrow(k.a))
	}
	if h.known == nil {
		h.known = map[helperKey]uint32{}
	}
	h.known[k] = i
	return i
}

func (m *module) typeSection() []byte {
	old := m.out[secType]
	b := make([]byte, 0, len(old)+64)
	b = appendU32(b, uint32(m.typeEntries+len(m.helpers.types)))
	b = append(b, old...)
	for _, t := range m.helpers.types {
		b = append(b, t...)
	}
	return b
}

func (m *module) functionSection() []byte {
	b := make([]byte, 0, len(m.funcs)*2+16)
	b = appendU32(b, m.defined+uint32(len(m.helpers.typeOf)))
	for _, t := range m.funcs[m.importedFuncs:] {
		b = appendU32(b, t)
	}
	for _, t := range m.helpers.typeOf {
		b = appendU32(b, t)
	}
	return b
}
