package meter

// A check takes a charge from the budget and calls tick when that is used up. Its
// shape is for wazero's compiler. Code is laid out in the order in which it is
// written, so what is hardly ever done has to stand behind what is done all the
// time. And what is alive across a call has to be in memory at that time: the
// compiler stores a value where it is used last before the call, but one that a
// loop carries from round to round it stores in every round.
//
// So a loop becomes
//
//	block (the type of the loop)
//	  loop (its type)
//	    block
//	      block (its type)
//	        br_if 1 (the budget, less the charge, is below zero)
//	        ... what it was ...
//	      end
//	      br 2
//	    end
//	    local = local | local, for those that it uses
//	    call refill
//	    br 0
//	  end
//	end
//
// where the compiler does not know that the locals have the values that they had.
// Elsewhere a check is
//
//	block
//	  br_if 0 (the budget, less the charge, is not below zero)
//	  call refill
//	end
//
// With an if in place of it the registers behind it would be those after the call,
// which is to say that all would be in memory.

// wrap is what is put around a loop.
type wrap struct {
	typ, end uint32 // where the loop's type stands
	locals   int32  // the loop's set
	void     bool   // it leaves no value
	used     bool   // there is a check at its head
	dispatch int32  // that it is, or none
	before          // of the loop
	twice    bool   // it is written twice
	inside   int    // edits in it
}

func (s *scanner) check(out []byte, charge int32) []byte {
	out = append(out, codeBlock, 0x40)
	out = s.charged(out, charge)
	out = append(out, codeI32Const, 0, codeI32GeS, codeBranchIf, 0, codeCall)
	out = appendU32(out, s.m.helpers.refill)
	return append(out, codeEnd)
}

// charged takes a constant from the budget and leaves the rest on the stack.
func (s *scanner) charged(out []byte, charge int32) []byte {
	budget := s.m.globals
	// A check may be come back to by way of another one.
	s.m.info.MinRefill = max(s.m.info.MinRefill, 2*charge)
	out = appendU32(append(out, codeGlobalGet), budget)
	out = appendS64(append(out, codeI32Const), int64(charge))
	out = appendU32(append(out, codeI32Sub, codeGlobalSet), budget)
	return appendU32(append(out, codeGlobalGet), budget)
}

// exhausted charges, and branches when that is too much.
func (s *scanner) exhausted(out []byte, charge int32, label uint32) []byte {
	out = s.charged(out, charge)
	out = append(out, codeI32Const, 0, codeI32LtS, codeBranchIf)
	return appendU32(out, label)
}

func (s *scanner) openBlock(out []byte, w *wrap) []byte {
	return append(append(out, codeBlock), s.m.src[w.typ:w.end]...)
}

// openRest goes on behind the loop's opening.
func (s *scanner) openRest(out []byte, charge int32, w *wrap) []byte {
	out = s.openBlock(append(out, codeBlock, 0x40), w)
	if charge > 0 {
		out = s.exhausted(out, charge, 1)
	}
	return out
}

// closeBlocks stands in for the loop's end.
func (s *scanner) closeBlocks(out []byte, w *wrap) []byte {
	used := w.used
	if w.dispatch != none {
		d := &s.dispatches[w.dispatch]
		used = used || d.back && d.own()
	}
	if !used && w.void {
		return append(out, codeEnd, codeEnd, codeEnd, codeEnd)
	}
	out = append(out, codeEnd, codeBranch, 2, codeEnd)
	if used {
		for _, u := range s.sets[w.locals].used {
			if u.read || w.dispatch != none && u.set {
				out = s.rename(out, u.local)
			}
		}
		out = append(out, codeCall)
		out = appendU32(out, s.m.helpers.refill)
		out = append(out, codeBranch, 0)
	} else {
		out = append(out, codeUnreachable)
	}
	return append(out, codeEnd, codeUnreachable, codeEnd)
}

// labelCheck is a check where a dispatch comes back to, which is where the loops
// of Go's compiler begin. It goes back to the head, and so through the dispatch.
func (s *scanner) labelCheck(out []byte, charge int32, l *label) []byte {
	d := &s.dispatches[l.dispatch]
	if !d.own() {
		return s.check(out, charge)
	}
	out = appendS64(append(out, codeI32Const), int64(l.number))
	out = appendU32(append(out, codeLocalSet), d.local)
	return s.exhausted(out, charge, l.depth)
}

// rename gives a local a new value that equals the old one, to the bit.
func (s *scanner) rename(out []byte, local uint32) []byte {
	var op byte
	switch localKind(s.groups, local) {
	case kindI32:
		op = codeI32Or
	case kindI64:
		op = codeI64Or
	case kindF32:
		op = codeF32Copysign
	case kindF64:
		op = codeF64Copysign
	case kindV128:
		op = codeVector
	default: // a reference: nothing can be done with it
		return out
	}
	out = appendU32(append(out, codeLocalGet), local)
	out = appendU32(append(out, codeLocalGet), local)
	out = append(out, op)
	if op == codeVector {
		out = append(out, vecOr)
	}
	return appendU32(append(out, codeLocalSet), local)
}

// memoryOp runs a bulk instruction on little memory as it is, and else its helper.
func (s *scanner) memoryOp(out, instruction []byte, helper uint32) []byte {
	temp := s.locals // the one that is added behind the function's own
	out = appendU32(append(out, codeLocalTee), temp)
	out = appendU32(append(out, codeLocalGet), temp)
	out = appendS64(append(out, codeI32Const), bulkInline)
	out = append(out, codeI32LeU, codeIf)
	out = appendS64(out, int64(s.m.helpers.bulkType))
	out = append(out, instruction...)
	out = append(out, codeElse, codeCall)
	out = appendU32(out, helper)
	return append(out, codeEnd)
}
