package meter

// assembler writes the code of a helper. Locals are i32.
type assembler struct {
	b      []byte
	locals uint32 // beyond the parameters
}

func (c *assembler) op(code ...byte)    { c.b = append(c.b, code...) }
func (c *assembler) get(local uint32)   { c.b = appendU32(append(c.b, codeLocalGet), local) }
func (c *assembler) set(local uint32)   { c.b = appendU32(append(c.b, codeLocalSet), local) }
func (c *assembler) tee(local uint32)   { c.b = appendU32(append(c.b, codeLocalTee), local) }
func (c *assembler) i32(v int32)        { c.b = appendS64(append(c.b, codeI32Const), int64(v)) }
func (c *assembler) i64(v int64)        { c.b = appendS64(append(c.b, codeI64Const), v) }
func (c *assembler) call(f uint32)      { c.b = appendU32(append(c.b, codeCall), f) }
func (c *assembler) setGlobal(g uint32) { c.b = appendU32(append(c.b, codeGlobalSet), g) }
func (c *assembler) getGlobal(g uint32) { c.b = appendU32(append(c.b, codeGlobalGet), g) }
func (c *assembler) branchIf(l uint32)  { c.b = appendU32(append(c.b, codeBranchIf), l) }
func (c *assembler) long(local uint32)  { c.get(local); c.op(codeI64ExtendU) }

// limit puts the end of the range that begins at an argument on the stack, as i64.
func (c *assembler) limit(from uint32) { c.long(from); c.long(argLen); c.op(codeI64Add) }

// advance moves an argument on by the piece that has been done.
func (c *assembler) advance(arg uint32) { c.get(arg); c.get(argPiece); c.op(codeI32Add); c.set(arg) }

// misc is an instruction of the prefix 0xfc.
func (c *assembler) misc(op uint32, operands ...uint32) {
	c.b = appendU32(append(c.b, codeMisc), op)
	for _, o := range operands {
		c.b = appendU32(c.b, o)
	}
}

// memoryBytes puts the size of the memory on the stack, as i64.
func (c *assembler) memoryBytes() {
	c.op(codeMemorySize, 0, codeI64ExtendU)
	c.i64(16)
	c.op(codeI64Shl)
}

// piece sets k to what of n is done next, and charges it.
func (c *assembler) piece(m *module, k, n uint32, most int32, shift int32) {
	c.get(n)
	c.i32(most)
	c.get(n)
	c.i32(most)
	c.op(codeI32LtU, codeSelect)
	c.set(k)
	c.getGlobal(m.globals)
	c.get(k)
	c.i32(shift)
	c.op(codeI32ShrU, codeI32Sub)
	c.i32(1)
	c.op(codeI32Sub)
	c.setGlobal(m.globals)
	c.getGlobal(m.globals)
	c.i32(0)
	c.op(codeI32LtS, codeIf, 0x40)
	c.call(m.helpers.refill)
	c.op(codeEnd)
}

// rest takes the piece from the length and goes round again while something is left.
func (c *assembler) rest() {
	c.get(argLen)
	c.get(argPiece)
	c.op(codeI32Sub)
	c.tee(argLen)
	c.branchIf(0)
	c.op(codeEnd)
}

func (c *assembler) body() []byte {
	head := []byte{0}
	if c.locals > 0 {
		head = append(appendU32([]byte{1}, c.locals), kindI32)
	}
	return append(append(head, c.b...), codeEnd)
}
