package meter

import "slices"

// edit is one change to a function's code, in the order of positions. Checks are
// put in where they belong and get their charge when it is known; one that stays
// at zero is left out.
type edit struct {
	pos  uint32 // offset into the module
	kind editKind
	skip uint8 // bytes that it replaces
	a, b int32
}

type editKind uint8

const (
	editCheck   editKind = iota // before an instruction: a is the charge
	editLabel                   // at a label that a dispatch goes back to: charge a, label b
	editOpen                    // before a loop: opens wrap b
	editLoop                    // at the head of a loop: opens the rest of wrap b; charge a
	editClose                   // at its end: closes wrap b
	editIndex                   // a replaces an index
	editBranch                  // a replaces a label; b is the frame that it is of
	editMemory                  // memory.copy, fill or init: helper b for what is large
	editLazy                    // before a call through table b
	editElement                 // an operation on tables: helper b
)

// edit appends one. The slice doubles when it is full: append's way would take
// several times the memory in all.
func (s *scanner) edit(e edit) {
	if len(s.edits) == cap(s.edits) {
		s.edits = slices.Grow(s.edits, len(s.edits)+64)
	}
	s.edits = append(s.edits, e)
}

// emit writes the code from start to end with the edits made.
func (s *scanner) emit(out []byte, start, end int) []byte {
	at := start
	for i := range s.edits {
		e := &s.edits[i]
		if e.a == 0 && e.kind <= editLabel {
			continue
		}
		pos := int(e.pos)
		out = append(out, s.m.src[at:pos]...)
		at = pos + int(e.skip)
		if e.skip > 0 {
			s.move(pos, len(out))
		}
		switch e.kind {
		case editCheck:
			out = s.check(out, e.a)
		case editLabel:
			out = s.labelCheck(out, e.a, &s.labels[e.b])
		case editOpen:
			out = s.openBlock(out, &s.wraps[e.b])
		case editLoop:
			w := &s.wraps[e.b]
			out = s.openRest(out, e.a, w)
			if w.twice {
				out = s.firstCopy(out, pos, s.edits[i+1:], w)
			}
		case editClose:
			out = s.closeBlocks(out, &s.wraps[e.b])
		case editIndex, editBranch:
			out = appendU32(out, uint32(e.a))
		case editMemory:
			out = s.memoryOp(out, s.m.src[pos:at], uint32(e.b))
		case editLazy:
			out = s.fillFirst(out, uint32(e.b))
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
