package meter

// Parts of the name section that hold indices which move or go.
const (
	namesFunctions = 1
	namesLocals    = 2
	namesLabels    = 3
	namesData      = 9
)

// nameSection moves the functions' names and gives the helpers theirs. What names
// labels goes, since checks are blocks too; so do names of merged segments. nil:
// the section is damaged, which is no reason to refuse the module: it is left out.
func (m *module) nameSection(s section) []byte {
	out := make([]byte, 0, s.end-s.pos+(s.end-s.pos)/16+128)
	out = appendName(out, "name")
	r := &reader{b: m.src, pos: s.pos, end: s.end}
	named := false
	for r.more() {
		id := r.u8()
		body := r.sub(r.u32())
		if r.err != nil {
			return nil
		}
		var part []byte
		switch id {
		case namesFunctions:
			part = m.functionNames(&body)
			named = true
		case namesLocals:
			part = m.localNames(&body)
		case namesLabels:
			continue
		case namesData:
			if m.info.SegmentsAfter != m.info.SegmentsBefore {
				continue
			}
			part = body.rest()
		default:
			part = body.rest()
		}
		if body.err != nil || body.more() {
			return nil
		}
		out = appendSection(out, id, part)
	}
	if !named {
		return nil
	}
	return out
}

func (r *reader) rest() []byte { return r.bytes(uint32(r.end - r.pos)) }

// functionNames are in the order of indices: tick comes between the imported
// ones and the module's own, the helpers after these.
func (m *module) functionNames(r *reader) []byte {
	n := r.count()
	out := make([]byte, 0, r.end-r.pos+(r.end-r.pos)/16+256)
	out = appendU32(out, uint32(n+1+len(m.helpers.names)))
	ticked := false
	tick := func() {
		if !ticked {
			out = appendName(appendU32(out, m.importedFuncs), "mqrun:"+ImportTick)
			ticked = true
		}
	}
	for range n {
		i := m.funcIndex(r)
		from := r.pos
		r.name()
		if r.err != nil {
			return nil
		}
		if i >= m.importedFuncs {
			tick()
		}
		out = append(appendU32(out, m.moved(i)), m.src[from:r.pos]...)
	}
	tick()
	for i, name := range m.helpers.names {
		out = appendName(appendU32(out, m.helpers.first+uint32(i)), name)
	}
	return out
}

func (m *module) localNames(r *reader) []byte {
	n := r.count()
	out := make([]byte, 0, r.end-r.pos+(r.end-r.pos)/16+8)
	out = appendU32(out, uint32(n))
	for ; n > 0 && r.err == nil; n-- {
		out = appendU32(out, m.moved(m.funcIndex(r)))
		from := r.pos
		for k := r.count(); k > 0 && r.err == nil; k-- {
			r.u32()
			r.name()
		}
		out = append(out, m.src[from:r.pos]...)
	}
	return out
}
