package meter

import "slices"

// An instance has, for each element of a function table, eight bytes and, when a
// function is in it, 32 more that wazero keeps of the function. Go's linker puts
// every function into the table, behind 4,096 empty elements, and a guest calls few
// of them that way. So such a table begins where its first function is, and a
// function comes into it when it is called for the first time:
//
//	... the index, less the elements that are left out
//	local.tee
//	block
//	  br_if 0 (the table has a function there)
//	  call fill (the index)
//	end
//	call_indirect
//
// An index below the table's beginning becomes one far too large, and traps just like
// one that finds no function. That is for tables that the module alone knows and
// that nothing but its element segments writes to. Whether it does is known when its
// code has been read: errTableInUse has it read once more.

const (
	// mostLazy is how many elements all such tables may have, and segments: what
	// fills them is some twenty times as long.
	mostLazy = 1 << 16
	// fillBits of an index are told apart in one function.
	fillBits = 8
)

// errTableInUse tells of an instruction that does more than call through a table.
var errTableInUse = &Error{Reason: "uses a table that is filled late"}

// elements is an element segment.
type elements struct {
	active bool
	table  uint32
	offset int64 // none when it is not a constant
	funcs  []uint32
	exprs  bool
	at     [2]int // where it lies in the new section
}

// lazyTables decides which tables are filled late, and writes the sections anew. Their
// segments stay as declarations, so that the indices of others do not move.
func (m *module) lazyTables(section []byte, all []elements) []byte {
	if m.opts.LazyTables <= 0 || m.stay || len(all) > mostLazy {
		return section
	}
	for i := range m.tables {
		m.tables[i].first = m.tables[i].lo
	}
	for _, e := range all {
		if !e.active {
			continue
		}
		if int(e.table) >= len(m.tables) { // the compiler will say so
			return section
		}
		t := &m.tables[e.table]
		if e.exprs || e.offset < 0 || e.offset+int64(len(e.funcs)) > int64(t.lo) || t.ref[0] != 0x70 {
			t.fixed = true
			continue
		}
		if len(e.funcs) > 0 {
			t.first = min(t.first, uint32(e.offset))
			t.filled += len(e.funcs)
		}
	}
	left := int64(mostLazy)
	for i := range m.tables {
		if t := &m.tables[i]; !t.fixed && t.filled >= m.opts.LazyTables && int64(t.lo-t.first) <= left {
			t.lazy = true
			t.funcs = make([]uint32, t.lo-t.first)
			left -= int64(len(t.funcs))
			m.info.Lazy++
			m.info.Effort += int64(len(t.funcs)) << fillBits
		}
	}
	if m.info.Lazy == 0 {
		return section
	}
	m.lazySection()
	out := make([]byte, 0, len(section))
	at := 0
	for _, e := range all {
		if !e.active || !m.tables[e.table].lazy {
			continue
		}
		t := &m.tables[e.table]
		out = append(append(out, section[at:e.at[0]]...), 3, 0) // declarative, of functions
		out = appendU32(out, uint32(len(e.funcs)))
		for k, f := range e.funcs {
			out = appendU32(out, f)
			t.funcs[int(e.offset)-int(t.first)+k] = f + 1 // 0 is none
		}
		at = e.at[1]
	}
	return append(out, section[at:]...)
}

// lazySection writes the table section.
func (m *module) lazySection() {
	old := m.out[secTable]
	out := make([]byte, 0, len(old))
	at := 0
	for i := range m.tables {
		t := &m.tables[i]
		if !t.lazy {
			continue
		}
		out = append(out, old[at:t.entry[0]]...)
		out = append(append(out, t.ref...), 1)
		out = appendU32(appendU32(out, t.lo-t.first), t.hi)
		at = t.entry[1]
	}
	m.out[secTable] = append(out, old[at:]...)
}

// addFills adds the functions that fill: one that chooses between others, each of
// which knows 256 elements.
func (m *module) addFills() {
	if m.info.Lazy == 0 {
		return
	}
	typ := m.helpers.addType(formFunc, 1, kindI32, 0)
	for i := range m.tables {
		t := &m.tables[i]
		if !t.lazy {
			continue
		}
		var choose assembler
		parts := slices.Collect(slices.Chunk(t.funcs, 1<<fillBits))
		choose.choices(len(parts), func() {
			choose.get(0)
			choose.i32(fillBits)
			choose.op(codeI32ShrU)
		}, func(k int) {
			choose.get(0)
			choose.call(m.helpers.add("mqrun:fill", typ, fillPart(uint32(i), parts[k], uint32(k)<<fillBits)))
		})
		t.fill = m.helpers.add("mqrun:fill", typ, choose.body())
		t.funcs = nil
	}
}

// fillPart fills one of the elements from first on.
func fillPart(table uint32, funcs []uint32, first uint32) []byte {
	var c assembler
	c.choices(len(funcs), func() {
		c.get(0)
		c.i32(int32(first))
		c.op(codeI32Sub)
	}, func(k int) {
		if funcs[k] == 0 {
			return
		}
		c.get(0)
		c.b = appendU32(append(c.b, codeRefFunc), funcs[k]-1)
		c.b = appendU32(append(c.b, codeTableSet), table)
	})
	return c.body()
}

// choices is a switch over n cases. Whatever is none of them does nothing.
func (c *assembler) choices(n int, index func(), do func(k int)) {
	for range n + 1 {
		c.op(codeBlock, 0x40)
	}
	index()
	c.b = appendU32(append(c.b, codeBranchTable), uint32(n))
	for k := range n + 1 {
		c.b = appendU32(c.b, uint32(k))
	}
	c.op(codeEnd)
	for k := range n {
		do(k)
		c.op(codeReturn, codeEnd)
	}
}

// indirect notes that a call goes through a table.
func (s *scanner) indirect(table uint32) {
	if s.r.err == nil && s.m.tables[table].lazy {
		s.temp = true
		s.blocks += 3
		s.edit(edit{pos: uint32(s.at), kind: editLazy, b: int32(table)})
	}
}

// fillFirst goes between the index of a call and the call.
func (s *scanner) fillFirst(out []byte, table uint32) []byte {
	t, temp := &s.m.tables[table], s.locals
	if t.first > 0 {
		out = appendS64(append(out, codeI32Const), int64(t.first))
		out = append(out, codeI32Sub)
	}
	out = appendU32(append(out, codeLocalTee), temp)
	out = appendU32(append(out, codeBlock, 0x40, codeLocalGet), temp)
	out = appendU32(append(out, codeTableGet), table)
	out = append(out, codeRefIsNull, codeI32Eqz, codeBranchIf, 0)
	out = appendU32(append(out, codeLocalGet), temp)
	out = appendU32(append(out, codeCall), t.fill)
	return append(out, codeEnd)
}

// wholeTable reads the index of a table by an instruction that does more than call.
func (s *scanner) wholeTable() uint32 {
	i := s.m.tableIndex(&s.r)
	if s.r.err == nil && s.m.tables[i].lazy {
		s.r.fail(errTableInUse)
	}
	return i
}
