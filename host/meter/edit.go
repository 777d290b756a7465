package meter

// edit is one change to a function's code, in the order of positions. Checks are
// put in where they belong and get their charge when it is known; one that stays
// at zero is left out.
type edit struct {
	pos  int // offset into the module
	kind editKind
	skip uint8 // bytes that it replaces
	a, b int32
}

type editKind uint8

const (
	editCheck   editKind = iota // before an instruction: a is the charge
	editLoop                    // at the head of a loop that takes no values: charge a, locals b
	editLabel                   // at a label that a dispatch goes back to: charge a, label b
	editNone                    // nothing
	editIndex                   // a replaces an index
	editBranch                  // a replaces a label
	editMemory                  // memory.copy, fill or init: helper b for what is large
	editElement                 // an operation on tables: helper b
)

// emit writes the code from start to end with the edits made.
func (s *scanner) emit(out []byte, start, end int) []byte {
	at := start
	for i := range s.edits {
		e := &s.edits[i]
		if e.a == 0 && e.kind <= editLabel || e.kind == editNone {
			continue
		}
		out = append(out, s.m.src[at:e.pos]...)
		at = e.pos + int(e.skip)
		if e.skip > 0 {
			s.move(e.pos, len(out))
		}
		switch e.kind {
		case editCheck:
			out = s.check(out, e.a)
		case editLoop:
			out = s.loopCheck(out, e.a, &s.sets[e.b])
		case editLabel:
			out = s.labelCheck(out, e.a, &s.labels[e.b])
		case editIndex, editBranch:
			out = appendU32(out, uint32(e.a))
		case editMemory:
			out = s.memoryOp(out, s.m.src[e.pos:at], uint32(e.b))
		case editElement:
			out = append(out, codeCall)
			out = appendU32(out, uint32(e.b))
		}
		s.move(at, len(out))
	}
	return append(out, s.m.src[at:end]...)
}

// move notes where an instruction is now, from the start of its function's body,
// when there are source lines to keep.
func (s *scanner) move(pos, to int) {
	if s.m.dwarf {
		s.moves = append(s.moves, move{from: pos, to: to})
	}
}
