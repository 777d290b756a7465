package meter

// scanner reads one function after the other and notes what has to change. Its
// slices are used again.
type scanner struct {
	m *module
	r reader

	frames     []frame
	edits      []edit
	sets       []localSet
	catches    []int32 // frames that the clauses of open try_tables go to
	dispatches []dispatch
	targets    []int32 // of dispatches: indices of labels, or none
	labels     []label
	wraps      []wrap
	closed     []int32 // labels in the order of their ends
	forward    []forward
	table      []uint32 // labels of one br_table
	groups     []localGroup
	moves      []move

	locals uint32 // with parameters
	temp   bool   // a local has to be added
	leaf   bool   // calls nothing
	dead   bool   // nothing gets here
	unpaid int32  // on the dearest path here, since the last charge
	added  int32  // blocks of wraps around here
	exit   int32  // the most unpaid where control leaves the function
	try    int32  // the innermost try_table's frame, or none

	run                      run
	step                     int // instructions so far
	blocks, reads            int // basic blocks as compiled, and uses of locals
	away, doubled            int // instructions that go elsewhere, and loops written twice
	constStep, setStep       int // when the last i32.const and local.set were
	constant                 int32
	setLocal                 uint32
	at                       int // the instruction's offset
	loops, entries, straight int
}

// move maps an offset into the module to one into the emitted code.
type move struct{ from, to int }

// code scans a body that begins behind its locals. sig is the function's type.
func (s *scanner) code(sig signature) {
	s.frames, s.edits, s.sets, s.catches = s.frames[:0], s.edits[:0], s.sets[:0], s.catches[:0]
	s.dispatches, s.targets, s.labels = s.dispatches[:0], s.targets[:0], s.labels[:0]
	s.closed, s.forward = s.closed[:0], s.forward[:0]
	s.wraps, s.added = s.wraps[:0], 0
	s.temp, s.leaf, s.dead, s.unpaid, s.exit, s.try = false, true, false, 0, 0, none
	s.step, s.constStep, s.setStep, s.run = 0, -9, -9, run{}
	s.blocks, s.reads, s.away, s.doubled = 0, 0, 0, 0
	s.push(codeEnd, int32(sig.results))
	for len(s.frames) > 0 && s.r.err == nil {
		s.step++
		s.at = s.r.pos
		s.instruction(s.r.u8())
	}
	s.settle()
	if s.r.err == nil && s.r.more() {
		s.r.fail(malformed(s.r.pos, "has code behind the end of a function"))
	}
}

func (s *scanner) push(kind byte, arity int32) *frame {
	f := frame{kind: kind, dead: s.dead, arity: arity, enter: s.unpaid, most: none, locals: none, order: none, wrap: none,
		before: s.added, outside: s.added}
	if n := len(s.frames); n > 0 {
		f.locals = s.frames[n-1].locals
		if n >= maxDepth {
			s.r.fail(refused(s.at, "nests more than %d blocks", maxDepth))
		}
	}
	s.frames = append(s.frames, f)
	s.blocks++
	return &s.frames[len(s.frames)-1]
}

// pay adds the cost of the instruction at hand, after a charge if that becomes
// too much.
func (s *scanner) pay(cost int32) {
	if s.dead {
		return
	}
	if s.unpaid+cost > stride {
		s.charge()
	}
	s.unpaid += cost
}

// payBefore is pay for an instruction whose operands have made edits from i on.
func (s *scanner) payBefore(cost int32, i int) {
	n := len(s.edits)
	s.pay(cost)
	if len(s.edits) > n && n > i {
		charge := s.edits[n]
		copy(s.edits[i+1:], s.edits[i:n])
		s.edits[i] = charge
	}
}

func (s *scanner) charge() {
	if s.unpaid > 0 {
		s.edit(edit{pos: uint32(s.at), kind: editCheck, a: s.unpaid})
		s.unpaid = 0
		s.blocks += 2
		s.straight++
		s.away++
	}
}

// leave notes that control may go elsewhere, with what is unpaid here: an exit,
// a call (that may recurse, or throw).
func (s *scanner) leave() {
	if s.dead {
		return
	}
	s.exit = max(s.exit, s.unpaid)
	if s.try != none {
		f := &s.frames[s.try]
		f.inside = max(f.inside, s.unpaid)
	}
}

// label reads the label of a branch, and writes it anew if blocks have been added
// between it and here.
func (s *scanner) label() uint32 {
	pos := s.r.pos
	l := s.r.u32()
	if int(l) >= len(s.frames) {
		if s.r.err == nil {
			s.r.fail(malformed(s.at, "branches out of its function"))
		}
		return 0
	}
	if more := s.added - s.target(l).outside; more > 0 {
		to := int32(len(s.frames)-1) - int32(l)
		s.edit(edit{pos: uint32(pos), kind: editBranch, skip: uint8(s.r.pos - pos), a: int32(l) + more, b: to})
	}
	return l
}

func (s *scanner) target(l uint32) *frame { return &s.frames[len(s.frames)-1-int(l)] }

// branch notes that control may go to a label from here.
func (s *scanner) branch(f *frame) {
	if s.dead {
		return
	}
	f.arrive(s.unpaid)
	if f.kind == codeLoop && f.order != none {
		s.dispatches[f.order].opaque = true
	}
}

// end closes a block.
func (s *scanner) end() {
	n := len(s.frames) - 1
	f := s.frames[n]
	s.frames = s.frames[:n]
	s.added = f.before
	switch f.kind {
	case codeLoop:
		s.endLoop(&f)
		return
	case codeIf: // the other way is past it
		if !f.dead {
			f.arrive(f.enter)
		}
	case tryTable:
		s.endTry(&f)
	}
	if f.reached {
		if !s.dead {
			f.most = max(f.most, s.unpaid)
		}
		s.unpaid, s.dead = f.most, false
	}
	switch {
	case f.kind == codeEnd:
		s.leave()
	case f.order != none && f.kind == codeBlock:
		s.land(f.order)
	}
}

func (s *scanner) endLoop(f *frame) {
	if f.reached {
		// Every round costs this much more than was unpaid on entry.
		s.edits[f.edit].a = max(0, f.most-f.enter)
	}
	if f.wrap != none {
		w := &s.wraps[f.wrap]
		w.used, w.dispatch = s.edits[f.edit].a > 0, f.order
		s.double(f, w)
		s.edit(edit{pos: uint32(s.at), kind: editClose, skip: 1, b: f.wrap})
	}
	if outer := s.frames[len(s.frames)-1].locals; outer != none {
		s.sets[outer].merge(&s.sets[f.locals])
	}
}

// endTry sends what may be thrown in a try_table to the labels of its clauses.
// They all lie outside, so none is closed yet.
func (s *scanner) endTry(f *frame) {
	for _, to := range s.catches[f.catch:] {
		if f.inside == none {
			break // nothing in it throws
		}
		label := &s.frames[to]
		label.arrive(f.inside + 1 + label.arity)
		if label.kind == codeLoop && label.order != none {
			s.dispatches[label.order].opaque = true
		}
	}
	s.catches = s.catches[:f.catch]
	s.try = f.edit
	if s.try != none {
		outer := &s.frames[s.try]
		outer.inside = max(outer.inside, f.inside)
	}
}

// effort is what the compiler takes for the function in the worst case, in steps of
// some 25 ns. It grows with the square of the blocks, and with the values that each
// of them hands on, which may be all locals, and their square.
func (s *scanner) effort() int64 {
	blocks, locals := int64(s.blocks), int64(min(int(s.locals), s.reads))
	return blocks * (blocks + 16*locals + locals*locals/16)
}
