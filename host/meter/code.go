package meter

// rewriter holds what is used again from function to function.
type rewriter struct {
	scan   scanner
	body   []byte // the one at hand
	bodies uint32
}

func (m *module) readCode(r *reader) error {
	at := r.pos
	n := r.count()
	if uint32(n) != m.defined {
		return malformed(at, "declares %d functions and has the code of %d", m.defined, n)
	}
	m.helpers.start(m)
	m.addFills()
	// A check takes about 25 bytes; there is one for a few dozen instructions.
	out := make([]byte, 0, (r.end-r.pos)*5/4+64)
	s := &m.code.scan
	s.m = m
	for i := range n {
		out = m.function(r, out, m.funcs[int(m.importedFuncs)+i])
		if r.err != nil {
			return r.err
		}
	}
	m.code.bodies = uint32(n)
	m.out[secCode] = out
	m.info.Loops, m.info.Entries, m.info.Checks = s.loops, s.entries, s.straight
	return r.done()
}

// function reads one body and appends the new one.
func (m *module) function(r *reader, out []byte, typ uint32) []byte {
	body := r.sub(r.u32())
	if r.err != nil {
		return out
	}
	if size := body.end - body.pos; size > maxBody {
		r.fail(refused(body.pos, "has a function of %d bytes; %d are the most", size, maxBody))
		return out
	}
	s := &m.code.scan
	s.r = body
	sig := m.types[typ]
	from := s.r.pos
	groups, decls := s.readLocals(sig)
	start := s.r.pos
	if s.r.err == nil {
		s.code(sig)
	}
	if s.r.err != nil {
		r.fail(s.r.err)
		return out
	}
	m.info.Effort += s.effort()
	if m.info.Effort > m.opts.MaxEffort {
		r.fail(refused(body.pos, "takes too long to compile: this function has %d blocks and %d locals", s.blocks, s.locals))
		return out
	}
	b := m.code.body[:0]
	if s.temp {
		b = appendU32(b, uint32(groups)+1)
		b = append(b, m.src[decls:start]...)
		b = append(b, 1, kindI32)
	} else {
		b = append(b, m.src[from:start]...)
	}
	first, code := len(s.moves), len(b)
	s.move(from, 0)
	s.move(start, code)
	if s.exit > 0 && (!s.leaf || s.exit > tinyLeaf) {
		b = s.check(b, s.exit)
		s.entries++
	}
	b = s.emit(b, start, s.r.end)
	s.move(s.r.end, len(b))
	m.code.body = b
	out = appendU32(out, uint32(len(b)))
	for i := range s.moves[first:] {
		s.moves[first+i].to += len(out)
	}
	return append(out, b...)
}

// readLocals reads the declarations, and gives how many groups and where they are.
func (s *scanner) readLocals(sig signature) (groups, decls int) {
	s.groups = s.groups[:0]
	for i := range uint32(sig.params) {
		s.groups = append(s.groups, localGroup{first: i, kind: s.m.kinds[sig.first+i]})
	}
	total := uint64(sig.params)
	at := s.r.pos
	groups = s.r.count()
	decls = s.r.pos
	for range groups {
		n := s.r.u32()
		kind := s.m.valueType(&s.r)
		if n > 0 && s.r.err == nil {
			s.groups = append(s.groups, localGroup{first: uint32(total), kind: kind})
		}
		total += uint64(n)
		if total > maxLocals || s.r.err != nil {
			break
		}
	}
	if total > maxLocals {
		s.r.fail(refused(at, "has a function with more than %d locals", maxLocals))
	}
	s.locals = uint32(total)
	return groups, decls
}

// codeSection is the number of bodies, the module's own and the helpers.
func (m *module) codeSection() []byte {
	own := m.out[secCode]
	b := make([]byte, 0, len(own)+2048)
	b = appendU32(b, m.defined+uint32(len(m.helpers.bodies)))
	b = append(b, own...)
	for _, h := range m.helpers.bodies {
		b = appendU32(b, uint32(len(h)))
		b = append(b, h...)
	}
	return b
}
