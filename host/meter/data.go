package meter

// mergeGap is the most zero bytes put between two data segments to make them one.
// A segment costs five bytes or more by itself, and at every instantiation an
// allocation and the evaluation of its offset.
const mergeGap = 256

// segment of data: head is where it begins in the module, with its flags.
type segment struct {
	head, end int
	data      []byte
	offset    int64 // or none, when it is not active at a constant
}

// readData copies the data segments, and makes one of neighbours if it may. Go's
// linker writes tens of thousands of them.
func (m *module) readData(r *reader) error {
	n := r.count()
	from := r.pos
	m.info.SegmentsBefore, m.info.SegmentsAfter = n, n
	m.data = n
	merge := m.opts.Merge && !m.dataUsed && m.memoryMin >= 0 && n > 1
	var out []byte
	if merge {
		out = make([]byte, 0, r.end-r.pos+4096)
	}
	var scratch []byte
	c := merger{limit: m.memoryMin, out: out}
	for ; n > 0 && r.err == nil; n-- {
		var s segment
		s, scratch = m.readSegment(r, scratch[:0])
		if merge && r.err == nil {
			c.add(m.src, s)
		}
	}
	if err := r.done(); err != nil {
		return err
	}
	if !merge {
		if m.data > maxSegments {
			return refused(from, "has %d data segments; %d are the most", m.data, maxSegments)
		}
		// Only offsets can name functions, and none that is valid does.
		m.set(secData, appendU32(nil, uint32(m.data)))
		m.out[secData] = append(m.out[secData], m.src[from:r.end]...)
		return nil
	}
	c.flush()
	m.info.SegmentsAfter = c.n
	if c.n > maxSegments {
		return refused(from, "has %d data segments; %d are the most", c.n, maxSegments)
	}
	m.set(secData, append(appendU32(make([]byte, 0, len(c.out)+5), uint32(c.n)), c.out...))
	return nil
}

func (m *module) readSegment(r *reader, scratch []byte) (segment, []byte) {
	s := segment{head: r.pos, offset: none}
	flags := r.u32()
	if flags > 2 && r.err == nil {
		r.fail(malformed(s.head, "has a data segment of unknown kind %d", flags))
	}
	if flags == 2 && r.u32() != 0 && r.err == nil {
		r.fail(refused(s.head, "uses more than one memory"))
	}
	if flags != 1 {
		var value int32
		var literal bool
		scratch, value, literal = m.constExpr(r, scratch)
		if literal {
			s.offset = int64(uint32(value))
		}
	}
	s.data = r.bytes(r.u32())
	s.end = r.pos
	return s, scratch
}

// maxRuns that are kept to know what has been written.
const maxRuns = 64

// merger joins segments that follow each other in a memory of the module's own,
// which is all zero before. Only what surely fits is joined: a segment that does
// not must trap as before, and on its own.
type merger struct {
	limit int64 // of the memory
	out   []byte
	n     int
	data  []byte // of the run in the making
	run   run64
	done  []run64 // earlier ones
	blind bool    // they are not all known
}

// run64 is from start to end, empty when they are the same.
type run64 struct{ start, end int64 }

func (c *merger) add(src []byte, s segment) {
	size := int64(len(s.data))
	switch fits := s.offset >= 0 && s.offset+size <= c.limit; {
	case !fits:
		c.flush()
		c.out = append(c.out, src[s.head:s.end]...)
		c.n++
		c.blind = c.blind || s.offset < 0
	case size == 0: // writes nothing
	case c.run.end > c.run.start && c.follows(s.offset):
		for ; c.run.end < s.offset; c.run.end++ {
			c.data = append(c.data, 0)
		}
		c.data = append(c.data, s.data...)
		c.run.end += size
	default:
		c.flush()
		c.data = append(c.data[:0], s.data...)
		c.run = run64{s.offset, s.offset + size}
	}
}

// follows: a segment at offset may join the run, over zeros that are there anyway.
func (c *merger) follows(offset int64) bool {
	gap := run64{c.run.end, offset}
	if gap.start == gap.end {
		return true
	}
	if gap.end < gap.start || gap.end-gap.start > mergeGap || c.blind {
		return false
	}
	for _, d := range c.done {
		if d.start < gap.end && gap.start < d.end {
			return false
		}
	}
	return true
}

func (c *merger) flush() {
	if c.run.end == c.run.start {
		return
	}
	c.out = append(c.out, 0, codeI32Const)
	c.out = appendS64(c.out, int64(int32(uint32(c.run.start))))
	c.out = append(c.out, codeEnd)
	c.out = appendU32(c.out, uint32(len(c.data)))
	c.out = append(c.out, c.data...)
	c.n++
	if len(c.done) == maxRuns {
		c.blind = true
	} else {
		c.done = append(c.done, c.run)
	}
	c.run = run64{}
}
