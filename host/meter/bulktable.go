package meter

// elements puts the size of a table on the stack, as i64.
func (c *assembler) elements(table uint32) {
	c.misc(miscTableSize, table)
	c.op(codeI64ExtendU)
}

func (m *module) tableCopy(to, from uint32) []byte {
	c := assembler{locals: 1}
	c.sum(argTo, argLen)
	c.elements(to)
	c.op(codeI64GtU)
	c.sum(argFrom, argLen)
	c.elements(from)
	c.op(codeI64GtU, codeI32Or)
	c.whole(miscTableCopy, to, from)
	c.copyPieces(m, tablePiece, 3, miscTableCopy, to, from)
	return c.body()
}

func (m *module) tableInit(segment, table uint32) []byte {
	c := assembler{locals: 1}
	c.sum(argTo, argLen)
	c.elements(table)
	c.op(codeI64GtU)
	c.outside()
	c.op(codeI32Or)
	c.whole(miscTableInit, segment, table)
	c.probe(miscTableInit, segment, table)
	c.upward(m, tablePiece, 3, miscTableInit, segment, table)
	return c.body()
}

func (m *module) tableFill(table uint32) []byte {
	c := assembler{locals: 1}
	c.sum(argTo, argLen)
	c.elements(table)
	c.op(codeI64GtU)
	c.whole(miscTableFill, table)
	c.op(codeLoop, 0x40)
	c.piece(m, argPiece, argLen, tablePiece, 3)
	c.get(argTo)
	c.get(argFrom)
	c.get(argPiece)
	c.misc(miscTableFill, table)
	c.advance(argTo, argPiece)
	c.rest(argPiece, argLen)
	return c.body()
}

// tableGrow charges the new elements and then grows in one go: a table is never
// larger than Options.TableMax, and half a growth could not be taken back.
func (m *module) tableGrow(table uint32) []byte {
	const value, delta, piece = 0, 1, 2
	c := assembler{locals: 1}
	c.piece(m, piece, delta, int32(min(m.opts.TableMax, 1<<27)), 3)
	c.get(value)
	c.get(delta)
	c.misc(miscTableGrow, table)
	return c.body()
}
