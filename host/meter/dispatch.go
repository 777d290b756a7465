package meter

// Go's compiler turns every jump, forward or back, into a round of one loop around
// the function that dispatches on a local:
//
//	loop
//	  block ... block
//	    br_table 0 1 2 ... (local)
//	  end
//	  ... i32.const 7, local.set (local), br (the loop)
//	end
//
// Taken as it stands each jump would pay for the longest way through the whole
// function. So a jump whose number is known is followed to its label: forward it
// branches there itself, which is also faster, and back it makes the label the
// head of a loop, with a check of its own.

// dispatch is such a loop.
type dispatch struct {
	loop    int    // its frame
	local   uint32 // number of the next label
	first   int32  // its targets in scanner.targets; the last is the default
	targets int32
	locals  int32 // the loop's set
	opaque  bool  // some branch goes to the loop itself
	back    bool  // some jump goes back
	reads   int   // of local, other than the dispatch
}

// own: the local serves the dispatch alone, so a check may set it.
func (d *dispatch) own() bool { return !d.opaque && d.reads == 0 }

// lookAhead is how many labels of a dispatch are looked at beyond the one at hand.
const lookAhead = 32

// label of a dispatch: the end of one of its blocks.
type label struct {
	dispatch int32
	number   int32 // that dispatches here
	closed   bool
	turn     int32 // its place in the order of ends
	inner    int32 // the turn of the innermost loop around it that begins elsewhere, or none
	edit     int32
	enter    int32
	depth    uint32 // of the wrap's second block, at the label
}

// run follows the opening of a dispatch: a loop, blocks, local.get.
type run struct {
	state uint8 // 0: none, 1: in the blocks, 2: after local.get
	loop  int
	local uint32
}

// open notes a dispatch, at its br_table; labels are those of the table.
func (s *scanner) open(labels []uint32) {
	d := dispatch{loop: s.run.loop, local: s.run.local, first: int32(len(s.targets)), locals: s.frames[s.run.loop].locals}
	top := len(s.frames) - 1
	base := int32(len(s.labels))
	for f := d.loop + 1; f <= top; f++ {
		s.frames[f].order = int32(len(s.labels))
		s.labels = append(s.labels, label{dispatch: int32(len(s.dispatches)), number: none, inner: none})
	}
	for k, l := range labels {
		f := top - int(l)
		if f <= d.loop {
			d.opaque = d.opaque || f == d.loop
			s.targets = append(s.targets, none)
			continue
		}
		i := base + int32(f-d.loop-1)
		if s.labels[i].number == none {
			s.labels[i].number = int32(k)
		}
		s.targets = append(s.targets, i)
	}
	d.targets = int32(len(labels))
	s.frames[d.loop].order = int32(len(s.dispatches))
	s.dispatches = append(s.dispatches, d)
}

// jump handles a br to the loop of a dispatch, whose label has just been read and
// written anew: true when its target is known.
func (s *scanner) jump(loop *frame) bool {
	d := &s.dispatches[loop.order]
	if s.setStep != s.step-1 || s.constStep != s.step-2 || s.setLocal != d.local {
		return false
	}
	k := min(uint32(s.constant), uint32(d.targets-1))
	i := s.targets[d.first+int32(k)]
	if i == none {
		return false
	}
	l := &s.labels[i]
	if l.closed {
		d.back = true
		e := &s.edits[l.edit]
		e.a = max(e.a, s.unpaid+2-l.enter)
		for _, in := range s.closed[l.turn+1 : min(int(l.turn)+lookAhead, len(s.closed))] {
			s.labels[in].inner = max(s.labels[in].inner, l.turn)
		}
		return true
	}
	f := d.loop + 1 + int(i-s.labelsOf(d))
	s.frames[f].arrive(s.unpaid + 2)
	depth := int32(len(s.frames)-1-f) + s.added - s.frames[f].outside
	s.forward = append(s.forward, forward{edit: int32(len(s.edits) - 1), label: i, turn: int32(len(s.closed)), depth: depth})
	return true
}

// labelsOf is the index of a dispatch's first label, that of its outermost block.
func (s *scanner) labelsOf(d *dispatch) int32 { return s.frames[d.loop+1].order }

// land closes a block of a dispatch and makes its label ready to be a loop.
func (s *scanner) land(order int32) {
	l := &s.labels[order]
	d := &s.dispatches[l.dispatch]
	// What is on its way to the labels that follow may join a loop from this one
	// and would seem to be part of its round. It does not when this label is taken
	// for as dear. Those far away hardly matter.
	for f := len(s.frames) - 1; f > d.loop && f > len(s.frames)-lookAhead; f-- {
		s.unpaid = max(s.unpaid, s.frames[f].most)
	}
	l.turn = int32(len(s.closed))
	s.closed = append(s.closed, order)
	l.closed, l.enter, l.edit = true, s.unpaid, int32(len(s.edits))
	l.depth = uint32(int32(len(s.frames)-1-d.loop) + s.added - s.frames[d.loop].outside - 1)
	s.edit(edit{pos: uint32(s.r.pos), kind: editLabel, b: order})
}

// forward is a jump to a label that follows: how many had closed before it, and
// how deep the label is.
type forward struct{ edit, label, turn, depth int32 }

// settle lets the jumps forward branch to their labels, except into the middle of
// a loop. The compiler keeps the values of a loop where they are when it sees it
// first, and would see it from there.
func (s *scanner) settle() {
	for _, f := range s.forward {
		if s.labels[f.label].inner < f.turn {
			s.edits[f.edit].a = f.depth
		}
	}
}
