package meter

// elements puts the size of a table on the stack, as i64.
func (c *assembler) elements(table uint32) {
	c.misc(miscTableSize, table)
	c.op(codeI64ExtendU)
}

func (m *module) tableCopy(to, from uint32) []byte {
	c := assembler{locals: 1}
	c.limit(argTo)
	c.elements(to)
	c.op(codeI64GtU)
	c.limit(argFrom)
	c.elements(from)
	c.op(codeI64GtU, codeI32Or)
	c.whole(miscTableCopy, to, from)
	c.copyPieces(m, tablePiece, tableShift, miscTableCopy, to, from)
	return c.body()
}

func (m *module) tableInit(segment, table uint32) []byte {
	c := assembler{locals: 1}
	c.limit(argTo)
	c.elements(table)
	c.op(codeI64GtU)
	c.outside()
	c.op(codeI32Or)
	c.whole(miscTableInit, segment, table)
	c.probe(miscTableInit, segment, table)
	c.upward(m, tablePiece, tableShift, miscTableInit, segment, table)
	return c.body()
}

func (m *module) tableFill(table uint32) []byte {
	c := assembler{locals: 1}
	c.limit(argTo)
	c.elements(table)
	c.op(codeI64GtU)
	c.whole(miscTableFill, table)
	c.op(codeLoop, 0x40)
	c.piece(m, argPiece, argLen, tablePiece, tableShift)
	c.get(argTo)
	c.get(argFrom)
	c.get(argPiece)
	c.misc(miscTableFill, table)
	c.advance(argTo)
	c.rest()
	return c.body()
}

// tableGrow charges the whole table, which wazero may have to copy, and then grows
// in one go: no table is larger than Options.TableMax, and half a growth could not
// be taken back.
func (m *module) tableGrow(table uint32) []byte {
	const value, delta, piece, all = 0, 1, 2, 3
	c := assembler{locals: 2}
	c.misc(miscTableSize, table)
	c.i32(int32(min(m.opts.TableMax, 1<<27)))
	c.get(delta)
	c.get(delta)
	c.i32(int32(min(m.opts.TableMax, 1<<27)))
	c.op(codeI32GtU, codeSelect) // more than that fails anyway
	c.op(codeI32Add)
	c.set(all)
	c.piece(m, piece, all, 1<<28, tableShift)
	c.get(value)
	c.get(delta)
	c.misc(miscTableGrow, table)
	return c.body()
}
