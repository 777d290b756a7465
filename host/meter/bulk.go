package meter

// The helpers do what the instruction does, in pieces with a check before each.
// An instruction whose range does not fit must trap before it writes anything:
// then it is run as it stands, which does just that. Sums are of 64 bits, so
// that none wraps.

// Parameters of all helpers on ranges: (destination, source or value, length).
const (
	argTo, argFrom, argLen = 0, 1, 2
	argPiece               = 3 // a local
)

// whole runs the instruction itself if the flag on the stack says that it traps.
func (c *assembler) whole(op uint32, operands ...uint32) {
	c.op(codeIf, 0x40)
	c.get(argTo)
	c.get(argFrom)
	c.get(argLen)
	c.misc(op, operands...)
	c.op(codeEnd)
}

func (m *module) memoryFill() []byte {
	c := assembler{locals: 1}
	c.limit(argTo)
	c.memoryBytes()
	c.op(codeI64GtU)
	c.whole(miscMemoryFill, 0)
	c.op(codeLoop, 0x40)
	c.piece(m, argPiece, argLen, bulkPiece, bulkShift)
	c.get(argTo)
	c.get(argFrom)
	c.get(argPiece)
	c.misc(miscMemoryFill, 0)
	c.advance(argTo)
	c.rest()
	return c.body()
}

func (m *module) memoryCopy() []byte {
	c := assembler{locals: 1}
	c.limit(argTo)
	c.memoryBytes()
	c.op(codeI64GtU)
	c.limit(argFrom)
	c.memoryBytes()
	c.op(codeI64GtU, codeI32Or)
	c.whole(miscMemoryCopy, 0, 0)
	c.copyPieces(m, bulkPiece, bulkShift, miscMemoryCopy, 0, 0)
	return c.body()
}

// copyPieces goes up when the destination is below the source and else down, so
// that nothing is overwritten before it has been read.
func (c *assembler) copyPieces(m *module, most, shift int32, op, a, b uint32) {
	c.op(codeLoop, 0x40)
	c.piece(m, argPiece, argLen, most, shift)
	c.get(argTo)
	c.get(argFrom)
	c.op(codeI32LeU, codeIf, 0x40)
	c.get(argTo)
	c.get(argFrom)
	c.get(argPiece)
	c.misc(op, a, b)
	c.advance(argTo)
	c.advance(argFrom)
	c.op(codeElse)
	for _, arg := range []uint32{argTo, argFrom} {
		c.get(arg)
		c.get(argLen)
		c.op(codeI32Add)
		c.get(argPiece)
		c.op(codeI32Sub)
	}
	c.get(argPiece)
	c.misc(op, a, b)
	c.op(codeEnd)
	c.rest()
}

// outside puts on the stack whether source and length go past the end of a
// segment. Only the instruction knows how long that is, for it may have been
// dropped: with a length of zero it traps when the source is past the end. What
// is left is a sum of more than 32 bits.
func (c *assembler) outside() {
	c.limit(argFrom)
	c.i64(1<<32 - 1)
	c.op(codeI64GtU)
}

// probe runs the instruction with a length of zero at the range's end.
func (c *assembler) probe(op, a, b uint32) {
	c.i32(0)
	c.get(argFrom)
	c.get(argLen)
	c.op(codeI32Add)
	c.i32(0)
	c.misc(op, a, b)
}

func (m *module) memoryInit(segment uint32) []byte {
	c := assembler{locals: 1}
	c.limit(argTo)
	c.memoryBytes()
	c.op(codeI64GtU)
	c.outside()
	c.op(codeI32Or)
	c.whole(miscMemoryInit, segment, 0)
	c.probe(miscMemoryInit, segment, 0)
	c.upward(m, bulkPiece, bulkShift, miscMemoryInit, segment, 0)
	return c.body()
}

// upward moves pieces to a destination from a source that cannot overlap.
func (c *assembler) upward(m *module, most, shift int32, op, a, b uint32) {
	c.op(codeLoop, 0x40)
	c.piece(m, argPiece, argLen, most, shift)
	c.get(argTo)
	c.get(argFrom)
	c.get(argPiece)
	c.misc(op, a, b)
	c.advance(argTo)
	c.advance(argFrom)
	c.rest()
}
