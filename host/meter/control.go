package meter

// block opens one.
func (s *scanner) block(kind operands, before run) {
	switch kind {
	case opIf:
		s.pay(1)
	case opLoop:
		if !s.dead && s.unpaid > stride/2 {
			s.charge() // before it, not in every round
		}
	default: // try_table pays when it is open, a block never
	}
	typ := s.r.pos
	params, results := s.m.blockType(&s.r)
	void := params == 0 && results == 0
	switch kind {
	case opBlock:
		s.push(codeBlock, results)
		if before.state == 1 && void {
			s.run = before
		}
	case opIf:
		s.push(codeIf, results)
	case opTryTable:
		s.openTry(results)
	default: // opLoop
		inLoop := s.frames[len(s.frames)-1].locals != none
		f := s.push(codeLoop, params)
		f.locals = s.newSet()
		if params == 0 && !s.dead {
			s.openWrap(f, wrap{typ: uint32(typ), end: uint32(s.r.pos), void: void})
		} else {
			f.edit = int32(len(s.edits))
			s.edit(edit{pos: uint32(s.r.pos), kind: editCheck})
		}
		s.loops++
		if len(s.sets) > maxLoops {
			s.r.fail(refused(s.at, "has a function of more than %d loops", maxLoops))
		}
		if void && !s.dead && !inLoop {
			s.run = run{state: 1, loop: len(s.frames) - 1}
		}
	}
}

// openWrap puts the blocks around a loop that its checks need: see wrap.
func (s *scanner) openWrap(f *frame, w wrap) {
	w.locals = f.locals
	f.wrap = int32(len(s.wraps))
	s.edit(edit{pos: uint32(s.at), kind: editOpen, b: f.wrap})
	f.edit = int32(len(s.edits))
	s.edit(edit{pos: uint32(s.r.pos), kind: editLoop, b: f.wrap})
	f.outside = s.added + 1
	s.added += 3
	s.blocks += 4
	w.before = s.before()
	s.wraps = append(s.wraps, w)
}

func (s *scanner) newSet() int32 {
	n := len(s.sets)
	if n == cap(s.sets) {
		s.sets = append(s.sets, localSet{})
	} else {
		s.sets = s.sets[:n+1]
		s.sets[n].used, s.sets[n].full = s.sets[n].used[:0], false
	}
	return int32(n)
}

// openTry opens a try_table. The labels of its clauses count from outside.
func (s *scanner) openTry(results int32) {
	first := int32(len(s.catches))
	edits := len(s.edits)
	for n := s.r.count(); n > 0 && s.r.err == nil; n-- {
		at := s.r.pos
		switch kind := s.r.u8(); kind {
		case 0, 1:
			if i := s.r.u32(); int(i) >= len(s.m.tags) && s.r.err == nil {
				s.r.fail(malformed(at, "names tag %d of %d", i, len(s.m.tags)))
			}
		case 2, 3:
		default:
			s.r.fail(malformed(at, "has a catch clause of unknown kind %d", kind))
		}
		if l := s.label(); s.r.err == nil {
			s.catches = append(s.catches, int32(len(s.frames)-1)-int32(l))
		}
	}
	s.payBefore(1, edits)
	f := s.push(tryTable, results)
	f.catch, f.edit, f.inside = first, s.try, none
	s.try = int32(len(s.frames) - 1)
	s.away++
}

// otherwise is else.
func (s *scanner) otherwise() {
	f := &s.frames[len(s.frames)-1]
	if f.kind != codeIf {
		s.r.fail(malformed(s.at, "has an else without an if"))
		return
	}
	if !s.dead {
		f.arrive(s.unpaid)
	}
	f.kind, s.unpaid, s.dead = codeElse, f.enter, f.dead
}

// jumps are br, br_if and its kin, and br_table.
func (s *scanner) jumps(kind operands, before run) {
	if kind == opTable {
		s.tableOfLabels(before)
		return
	}
	edits := len(s.edits)
	f := s.target(s.label())
	s.blocks++
	s.payBefore(1+f.arity, edits)
	if kind != opBranch || s.dead || f.kind != codeLoop || f.order == none || !s.jump(f) {
		s.branch(f)
	}
	if kind == opBranch {
		s.dead = true
	}
}

func (s *scanner) tableOfLabels(before run) {
	s.table = s.table[:0]
	edits := len(s.edits)
	n := s.r.count()
	if n > maxTargets {
		s.r.fail(refused(s.at, "has a br_table of %d targets; %d are the most", n, maxTargets))
	}
	for n++; n > 0 && s.r.err == nil; n-- {
		s.table = append(s.table, s.label())
	}
	if s.r.err != nil {
		return
	}
	s.blocks += 1 + len(s.table)/8
	s.payBefore(1+s.target(s.table[len(s.table)-1]).arity, edits)
	for _, l := range s.table {
		s.branch(s.target(l))
	}
	if before.state == 2 && !s.dead {
		s.open(s.table)
	}
	s.dead = true
}
