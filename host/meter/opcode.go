package meter

// operands says what follows an opcode.
type operands uint8

const (
	opUnknown operands = iota
	opPlain            // nothing
	opBlock
	opLoop
	opIf
	opElse
	opEnd
	opBranch    // label
	opBranchIf  // label, goes on when not taken
	opTable     // labels of br_table
	opReturn    // return, throw_ref, unreachable: leave for good
	opThrow     // tag
	opTryTable  // block type, catch clauses
	opCall      // function
	opIndirect  // type, table
	opCallRef   // type
	opTailCall  // function
	opTailTable // type, table
	opTailRef   // type
	opSelect    // types
	opLocalGet
	opLocalSet // and tee
	opGlobal
	opElements // a table
	opMemory   // alignment and offset
	opPages    // memory.size: one zero byte
	opGrow     // memory.grow: one zero byte
	opI32
	opI64
	opF32
	opF64
	opRefNull
	opRefFunc
	opMisc   // prefix 0xfc
	opVector // prefix 0xfd
	opAtomic // prefix 0xfe
	opLegacy // exceptions as they were before try_table
)

const (
	codeUnreachable = 0x00
	codeBlock       = 0x02
	codeLoop        = 0x03
	codeIf          = 0x04
	codeElse        = 0x05
	codeEnd         = 0x0b
	codeBranch      = 0x0c
	codeBranchIf    = 0x0d
	codeBranchTable = 0x0e
	codeReturn      = 0x0f
	codeCall        = 0x10
	codeSelect      = 0x1b
	codeLocalGet    = 0x20
	codeLocalSet    = 0x21
	codeLocalTee    = 0x22
	codeGlobalGet   = 0x23
	codeGlobalSet   = 0x24
	codeTableGet    = 0x25
	codeTableSet    = 0x26
	codeMemorySize  = 0x3f
	codeI32Const    = 0x41
	codeI64Const    = 0x42
	codeI32Eqz      = 0x45
	codeI32LtS      = 0x48
	codeI32LtU      = 0x49
	codeI32GeS      = 0x4e
	codeI32GtU      = 0x4b
	codeI32LeU      = 0x4d
	codeI64LtU      = 0x54
	codeI64GtU      = 0x56
	codeI64ShrU     = 0x88
	codeI32Add      = 0x6a
	codeI32Sub      = 0x6b
	codeI32Or       = 0x72
	codeI32ShrU     = 0x76
	codeI64Add      = 0x7c
	codeI64Or       = 0x84
	codeI64Shl      = 0x86
	codeF32Copysign = 0x98
	codeF64Copysign = 0xa6
	codeI64ExtendU  = 0xad
	codeRefIsNull   = 0xd1
	codeRefFunc     = 0xd2
	codeMisc        = 0xfc
	codeVector      = 0xfd

	miscMemoryInit = 8
	miscDataDrop   = 9
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscElemDrop   = 13
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableSize  = 16
	miscTableFill  = 17

	vecOr = 80
)

// opcodes by their first byte: what wazero 1.12 accepts with every feature on,
// and what it does not but a reason can be given for.
var opcodes = [256]operands{
	0x00: opReturn, 0x01: opPlain, 0x02: opBlock, 0x03: opLoop, 0x04: opIf, 0x05: opElse,
	0x06: opLegacy, 0x07: opLegacy, 0x08: opThrow, 0x09: opLegacy, 0x0a: opReturn, 0x0b: opEnd,
	0x0c: opBranch, 0x0d: opBranchIf, 0x0e: opTable, 0x0f: opReturn,
	0x10: opCall, 0x11: opIndirect, 0x12: opTailCall, 0x13: opTailTable, 0x14: opCallRef, 0x15: opTailRef,
	0x18: opLegacy, 0x19: opLegacy, 0x1a: opPlain, 0x1b: opPlain, 0x1c: opSelect, 0x1f: opTryTable,
	0x20: opLocalGet, 0x21: opLocalSet, 0x22: opLocalSet, 0x23: opGlobal, 0x24: opGlobal,
	0x25: opElements, 0x26: opElements,
	0x28: opMemory, 0x29: opMemory, 0x2a: opMemory, 0x2b: opMemory, 0x2c: opMemory, 0x2d: opMemory,
	0x2e: opMemory, 0x2f: opMemory, 0x30: opMemory, 0x31: opMemory, 0x32: opMemory, 0x33: opMemory,
	0x34: opMemory, 0x35: opMemory, 0x36: opMemory, 0x37: opMemory, 0x38: opMemory, 0x39: opMemory,
	0x3a: opMemory, 0x3b: opMemory, 0x3c: opMemory, 0x3d: opMemory, 0x3e: opMemory,
	0x3f: opPages, 0x40: opGrow, 0x41: opI32, 0x42: opI64, 0x43: opF32, 0x44: opF64,
	// 0x45 to 0xc4, comparisons and arithmetic: see operandsOf.
	0xd0: opRefNull, 0xd1: opPlain, 0xd2: opRefFunc, 0xd4: opPlain, 0xd5: opBranchIf, 0xd6: opBranchIf,
	0xfc: opMisc, 0xfd: opVector, 0xfe: opAtomic,
}

func operandsOf(op byte) operands {
	if op >= 0x45 && op <= 0xc4 {
		return opPlain
	}
	return opcodes[op]
}

// vector skips what follows the prefix 0xfd. wazero reads one byte of the
// opcode and takes the second of a longer one for an instruction of its own:
// that is right only when it is 1, a nop. So nothing else may stand there.
func (r *reader) vector() {
	at := r.pos
	op := uint32(r.u8())
	if op >= 0x80 {
		if r.u8() != 1 {
			r.fail(refused(at, "uses a vector instruction beyond SIMD's 256, or writes one in an unusual way"))
			return
		}
	}
	switch {
	case op <= 11 || op == 92 || op == 93: // loads and stores
		r.memarg()
	case op == 12 || op == 13: // v128.const, i8x16.shuffle
		r.skip(16)
	case op >= 21 && op <= 34: // lanes
		r.skip(1)
	case op >= 84 && op <= 91: // loads and stores of lanes
		r.memarg()
		r.skip(1)
	}
}

func (r *reader) memarg() {
	at := r.pos
	if align := r.u32(); align >= 32 {
		r.fail(refused(at, "uses more than one memory, or an impossible alignment"))
	}
	r.u32()
}

// zero reads the byte that stands for the only memory.
func (r *reader) zero() {
	at := r.pos
	if r.u8() != 0 {
		r.fail(refused(at, "uses more than one memory"))
	}
}
