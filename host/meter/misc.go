package meter

// misc handles the instructions behind the prefix 0xfc. What works on ranges goes
// through a helper, unless it is known to be short.
func (s *scanner) misc() {
	r := &s.r
	op := r.u32()
	if op > miscTableFill {
		if r.err == nil {
			r.fail(refused(s.at, "uses an instruction (0xfc %d) that does not run here", op))
		}
		return
	}
	k := helperKey{op: op}
	cost := int32(1)
	switch op {
	case miscMemoryInit:
		k.a = s.segment(s.m.dataCount)
		r.zero()
		s.m.dataUsed, cost = true, costBulk
	case miscDataDrop:
		s.segment(s.m.dataCount)
		s.m.dataUsed = true
	case miscMemoryCopy:
		r.zero()
		r.zero()
		cost = costBulk
	case miscMemoryFill:
		r.zero()
		cost = costBulk
	case miscTableInit:
		k.a = s.segment(s.m.elements)
		k.b = s.wholeTable()
	case miscElemDrop:
		s.segment(s.m.elements)
	case miscTableCopy:
		k.a, k.b = s.wholeTable(), s.wholeTable()
	case miscTableGrow:
		k.a = s.wholeTable()
		cost = costGrow
	case miscTableSize:
		s.wholeTable()
	case miscTableFill:
		k.a = s.wholeTable()
	}
	if r.err != nil {
		return
	}
	s.pay(cost)
	switch op {
	case miscMemoryInit, miscMemoryCopy, miscMemoryFill:
		if s.constStep == s.step-1 && uint32(s.constant) <= bulkInline {
			return
		}
		s.temp = true
		s.blocks += 3
		s.replace(editMemory, k)
	case miscTableInit, miscTableCopy, miscTableGrow, miscTableFill:
		s.replace(editElement, k)
	}
}

func (s *scanner) replace(kind editKind, k helperKey) {
	if len(s.m.helpers.known) >= maxHelpers {
		s.r.fail(refused(s.at, "uses bulk instructions on more than %d segments and tables", maxHelpers))
		return
	}
	s.away++
	s.edit(edit{
		pos: uint32(s.at), kind: kind, skip: uint8(s.r.pos - s.at), b: int32(s.m.helpers.of(s.m, k)),
	})
	s.m.info.Bulk++
}

// segment reads and checks the index of a segment.
func (s *scanner) segment(n int) uint32 {
	at := s.r.pos
	i := s.r.u32()
	if int(i) >= n && s.r.err == nil {
		s.r.fail(malformed(at, "names segment %d of %d", i, max(n, 0)))
	}
	return i
}
