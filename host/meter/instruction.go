package meter

// instruction handles one instruction, its opcode read already.
func (s *scanner) instruction(op byte) {
	r := &s.r
	before := s.run
	s.run.state = 0
	kind := operandsOf(op)
	switch kind {
	case opBlock, opLoop, opIf, opTryTable:
		s.block(kind, before)
		return
	case opElse:
		s.otherwise()
		return
	case opEnd:
		s.end()
		return
	case opBranch, opBranchIf, opTable:
		s.jumps(kind, before)
		return
	case opLocalGet:
		s.pay(1)
		l := s.useLocal(false)
		if before.state == 1 {
			s.run = run{state: 2, loop: before.loop, local: l}
		}
		if len(s.dispatches) > 0 && s.dispatches[0].local == l {
			s.dispatches[0].reads++
		}
		return
	case opCall, opIndirect, opCallRef, opTailCall, opTailTable, opTailRef:
		s.call(kind)
		return
	case opPlain:
		if op != 0x01 { // nop
			s.pay(1)
		}
		return
	default:
	}
	if kind != opMisc {
		s.pay(1)
	}
	switch kind {
	case opReturn:
		if op != codeUnreachable {
			s.leave()
		}
		s.dead = true
	case opThrow:
		s.throw()
	case opSelect:
		s.selectTyped()
	case opLocalSet:
		s.setLocal = s.useLocal(true)
		if op == codeLocalSet {
			s.setStep = s.step
		}
	case opGlobal:
		s.m.globalIndex(r)
	case opElements:
		s.wholeTable()
	case opMemory:
		r.memarg()
	case opPages:
		r.zero()
	case opGrow:
		r.zero()
		s.pay(costGrow)
	case opI32:
		s.constant, s.constStep = int32(r.s32()), s.step
	case opI64:
		r.signed(10)
	case opF32:
		r.skip(4)
	case opF64:
		r.skip(8)
	case opRefNull:
		s.m.refType(r)
	case opRefFunc:
		pos := r.pos
		s.index(s.m.funcIndex(r), pos)
	case opMisc:
		s.misc()
	case opVector:
		r.vector()
	case opAtomic:
		r.fail(refused(s.at, "uses an atomic instruction: threads do not run here"))
	case opLegacy:
		r.fail(refused(s.at, "uses exceptions of the old kind; compile it for the standard ones (wasm-opt --translate-to-exnref)"))
	default:
		if r.err == nil {
			r.fail(refused(s.at, "uses an instruction (%#x) that does not run here", op))
		}
	}
}

func (s *scanner) useLocal(set bool) uint32 {
	l := s.r.u32()
	if l >= s.locals {
		if s.r.err == nil {
			s.r.fail(malformed(s.at, "names local %d of %d", l, s.locals))
		}
		return 0
	}
	s.reads++
	if in := s.frames[len(s.frames)-1].locals; in != none {
		s.sets[in].use(l, set)
	}
	return l
}

// selectTyped reads the type of a select. The compiler takes it for two bytes.
func (s *scanner) selectTyped() {
	n := s.r.u8()
	t := s.r.u8()
	if n != 1 || t == 0x63 || t == 0x64 {
		s.r.fail(refused(s.at, "uses select with a type that does not run here"))
	}
}

// index notes that a function's index, written at pos, moves.
func (s *scanner) index(i uint32, pos int) {
	if to := s.m.moved(i); to != i {
		s.edit(edit{pos: uint32(pos), kind: editIndex, skip: uint8(s.r.pos - pos), a: int32(to)})
	}
}

func (s *scanner) call(kind operands) {
	pos := s.r.pos
	var sig signature
	if kind == opCall || kind == opTailCall {
		i := s.m.funcIndex(&s.r)
		if s.r.err != nil {
			return
		}
		sig = s.m.types[s.m.funcs[i]]
		s.pay(costCall + sig.arity())
		s.index(i, pos)
	} else {
		sig = s.m.typeIndex(&s.r)
		edits := len(s.edits)
		if kind == opIndirect || kind == opTailTable {
			s.indirect(s.m.tableIndex(&s.r))
		}
		s.payBefore(costCall+sig.arity(), edits)
	}
	s.leaf = false
	s.away++
	s.leave()
	if kind >= opTailCall && kind <= opTailRef {
		s.dead = true
	}
}

func (s *scanner) throw() {
	i := s.r.u32()
	if int(i) >= len(s.m.tags) {
		if s.r.err == nil {
			s.r.fail(malformed(s.at, "names tag %d of %d", i, len(s.m.tags)))
		}
		return
	}
	s.pay(s.m.tags[i].arity())
	s.leave()
	s.dead = true
}
