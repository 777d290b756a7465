package meter

// A check is
//
//	block
//	  budget = budget - charge
//	  br_if 0 (budget >= 0)
//	  call refill
//	end
//
// and its shape is for wazero's compiler. The way that is nearly always taken is
// a branch out of the block, so the rest is laid out at the end of the function
// and the registers at the block's end are those of the fast way. (With an if in
// place of it they are those after the call: all in memory.)
//
// What is alive across the call has to be in memory at that time. The compiler
// stores a value where the slow way begins, but one that a loop carries from
// round to round it stores in every round. So at the head of a loop the slow way
// gives such locals new values (x | x), of which it does not know that they are
// the old ones, and goes back to the head instead of on.

func (s *scanner) check(out []byte, charge int32) []byte {
	out = s.openCheck(out, charge)
	out = append(out, codeCall)
	out = appendU32(out, s.m.helpers.refill)
	return append(out, codeEnd)
}

func (s *scanner) openCheck(out []byte, charge int32) []byte {
	out = append(out, codeBlock, 0x40)
	out = appendCharge(out, s.m.globals, int64(charge))
	return append(out, codeI32Const, 0, codeI32GeS, codeBranchIf, 0)
}

// appendCharge takes a constant from the budget and leaves the rest on the stack.
func appendCharge(out []byte, budget uint32, charge int64) []byte {
	out = appendU32(append(out, codeGlobalGet), budget)
	out = appendS64(append(out, codeI32Const), charge)
	out = appendU32(append(out, codeI32Sub, codeGlobalSet), budget)
	return appendU32(append(out, codeGlobalGet), budget)
}

// loopCheck is a check at the head of a loop that takes no values.
func (s *scanner) loopCheck(out []byte, charge int32, locals *localSet) []byte {
	out = s.openCheck(out, charge)
	for _, u := range locals.used {
		if u.read {
			out = s.rename(out, u.local)
		}
	}
	out = append(out, codeCall)
	out = appendU32(out, s.m.helpers.refill)
	return append(out, codeBranch, 1, codeEnd)
}

// labelCheck is a check where a dispatch comes back to, which is where the loops
// of Go's compiler begin. Going back to the head means through the dispatch.
func (s *scanner) labelCheck(out []byte, charge int32, l *label) []byte {
	d := &s.dispatches[l.dispatch]
	if !d.own() {
		return s.check(out, charge)
	}
	out = s.openCheck(out, charge)
	for _, u := range s.sets[d.locals].used {
		if u.set && u.local != d.local {
			out = s.rename(out, u.local)
		}
	}
	out = append(out, codeCall)
	out = appendU32(out, s.m.helpers.refill)
	out = appendS64(append(out, codeI32Const), int64(l.number))
	out = appendU32(append(out, codeLocalSet), d.local)
	out = appendU32(append(out, codeBranch), l.depth+1)
	return append(out, codeEnd)
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
