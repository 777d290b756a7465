package meter

// A check in every round is felt where rounds are short. So an innermost loop of
// few instructions is written twice, and the check at its head pays for both:
//
//	block next
//	  ... the first copy, in which br to the loop is br next
//	  br to the loop's end
//	end
//	... the loop as it was
//
// The compiler also fetches the place and size of the memory once for both, which
// it does in every round otherwise. Who leaves from the first copy has paid for
// one round too much.

// What is written twice. A function with source lines never is: a copy has none.
const (
	maxTwiceCost   = 64 // of a round
	maxTwiceBlocks = 12
	maxTwiceBytes  = 256
	maxTwice       = 1 << 12 // loops of one function
)

// before is where a function stood when a loop began.
type before struct {
	frame               int32 // the loop's
	sets, blocks, reads int
	calls               int // and whatever else goes elsewhere
}

func (s *scanner) before() before {
	return before{frame: int32(len(s.frames) - 1), sets: len(s.sets), blocks: s.blocks, reads: s.reads, calls: s.away}
}

// double decides whether a loop that has just been read is written twice.
func (s *scanner) double(f *frame, w *wrap) {
	head := &s.edits[f.edit]
	blocks := s.blocks - w.blocks
	switch {
	case head.a <= 0 || head.a > maxTwiceCost || blocks > maxTwiceBlocks || s.at-int(head.pos) > maxTwiceBytes:
	case len(s.sets) != w.sets || s.away != w.calls || len(s.dispatches) > 0:
	case s.m.dwarf || s.doubled == maxTwice:
	default:
		head.a *= 2
		w.inside = len(s.edits) - int(f.edit) - 1
		w.twice = true
		s.blocks += blocks + 2
		s.reads += s.reads - w.reads
		s.doubled++
		s.m.info.Twice++
	}
}

// firstCopy writes it. edits are those behind the loop's head.
func (s *scanner) firstCopy(out []byte, start int, edits []edit, w *wrap) []byte {
	out = append(out, codeBlock, 0x40)
	at := start
	for i := range edits[:w.inside] {
		e := &edits[i]
		out = append(out, s.m.src[at:e.pos]...)
		at = int(e.pos) + int(e.skip)
		index := e.a
		switch {
		case e.kind != editBranch:
		case e.b == w.frame: // the next round: past two blocks of the wrap
			index -= 2
		default: // out, past one block more
			index++
		}
		out = appendU32(out, uint32(index))
	}
	out = append(out, s.m.src[at:edits[w.inside].pos]...)
	return append(out, codeBranch, 1, codeEnd)
}
