package meter

// constExpr copies a constant expression with its function indices moved.
// literal: it is nothing but an i32.const of this value.
func (m *module) constExpr(r *reader, out []byte) (_ []byte, value int32, literal bool) {
	for n := 0; ; n++ {
		from := r.pos
		op := r.u8()
		switch op {
		case codeEnd:
			return append(out, op), value, literal && n == 1
		case codeI32Const:
			value, literal = int32(r.s32()), n == 0
		case codeI64Const:
			r.signed(10)
		case 0x43: // f32.const
			r.skip(4)
		case 0x44: // f64.const
			r.skip(8)
		case codeGlobalGet:
			m.globalIndex(r)
		case 0xd0: // ref.null
			m.refType(r)
		case 0xd2: // ref.func
			out = append(out, op)
			out = appendU32(out, m.moved(m.funcIndex(r)))
			continue
		case codeI32Add, codeI32Sub, 0x6c, codeI64Add, 0x7d, 0x7e: // extended const
		case codeVector:
			if at := r.pos; r.u8() != 12 {
				r.fail(malformed(at, "has an instruction that is not constant where a constant has to be"))
			}
			r.skip(16)
		default:
			if r.err == nil {
				r.fail(malformed(from, "has an instruction (%#x) that is not constant where a constant has to be", op))
			}
		}
		if r.err != nil {
			return out, 0, false
		}
		out = append(out, r.b[from:r.pos]...)
	}
}

// refType reads what follows ref.null: a heap type, as wazero reads it.
func (m *module) refType(r *reader) {
	if r.more() {
		switch r.b[r.pos] {
		case 0x70, 0x6f, 0x69:
			r.pos++
			return
		}
	}
	m.typeIndex(r)
}

// funcIndex reads and checks the index of a function, as the module counts.
// Without the check an index past the end would name one that is added here.
func (m *module) funcIndex(r *reader) uint32 {
	at := r.pos
	i := r.u32()
	if int(i) >= len(m.funcs) && r.err == nil {
		r.fail(malformed(at, "names function %d of %d", i, len(m.funcs)))
	}
	return i
}

// globalIndex is funcIndex for globals: one past the end would be the budget.
func (m *module) globalIndex(r *reader) uint32 {
	at := r.pos
	i := r.u32()
	if i >= m.globals && r.err == nil {
		r.fail(malformed(at, "names global %d of %d", i, m.globals))
	}
	return i
}

func (m *module) tableIndex(r *reader) uint32 {
	at := r.pos
	i := r.u32()
	if int(i) >= len(m.tables) && r.err == nil {
		r.fail(malformed(at, "names table %d of %d", i, len(m.tables)))
	}
	return i
}

// moved is where a function is after tick has been added to the imports.
func (m *module) moved(i uint32) uint32 {
	if i >= m.importedFuncs {
		return i + 1
	}
	return i
}
