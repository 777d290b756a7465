package meter

// readTables lowers every maximum to Options.TableMax: wazero bounds memories,
// not tables, and table.grow in a loop would take gigabytes.
func (m *module) readTables(r *reader) error {
	n := r.count()
	out := appendU32(make([]byte, 0, r.end-r.pos+8*n), uint32(n))
	for ; n > 0 && r.err == nil; n-- {
		out = m.readTable(r, out)
	}
	m.set(secTable, out)
	return r.done()
}

// readTable reads one table, of its own when out is given. An imported one keeps
// its limits: they are part of how modules fit together, and the module that
// exports it has been through here.
func (m *module) readTable(r *reader, out []byte) []byte {
	own := out != nil
	initial := own && r.more() && r.b[r.pos] == 0x40
	if initial {
		r.u8()
		if at := r.pos; r.u8() != 0 {
			r.fail(malformed(at, "has a table of unknown form"))
		}
	}
	from := r.pos
	m.valueType(r)
	ref := r.b[from:r.pos]
	if r.err != nil {
		return out
	}
	if r.b[from] <= kindI32 && r.b[from] >= kindV128 {
		r.fail(malformed(from, "has a table of numbers"))
	}
	at := r.pos
	flags := r.u8()
	if flags > 1 && r.err == nil {
		r.fail(refused(at, "has a table that is shared or of 64 bits"))
		return out
	}
	lo, hi := r.u32(), m.opts.TableMax
	if flags == 1 {
		declared := r.u32()
		if declared < lo && r.err == nil {
			r.fail(malformed(at, "has a table whose minimum is above its maximum"))
		}
		hi = min(hi, declared)
	}
	m.tables = append(m.tables, table{ref: ref, lo: lo, hi: hi, fixed: !own || initial, entry: [2]int{len(out), 0}})
	if len(m.tables) > maxTables {
		r.fail(refused(at, "has more than %d tables", maxTables))
	}
	if !own {
		return nil
	}
	if lo > m.opts.TableMax && r.err == nil {
		r.fail(refused(at, "has a table of %d elements; %d are the most", lo, m.opts.TableMax))
	}
	if initial {
		out = append(out, 0x40, 0)
	}
	out = append(append(out, ref...), 1)
	out = appendU32(appendU32(out, lo), hi)
	if initial {
		// wazero takes null for a value of the first function's type.
		if r.more() && r.b[r.pos] == 0xd0 && ref[0] == 0x64 {
			r.fail(malformed(r.pos, "starts a table that holds no null with null"))
		}
		out, _, _ = m.constExpr(r, out)
	}
	m.tables[len(m.tables)-1].entry[1] = len(out)
	return out
}

func (m *module) readMemory(r *reader) error {
	at := r.pos
	n := r.count()
	if n > 1 || n == 1 && m.memory {
		return refused(at, "has more than one memory")
	}
	if n == 1 {
		m.memoryMin = int64(m.readLimits(r)) << 16
	}
	return r.done()
}

// readLimits of a memory.
func (m *module) readLimits(r *reader) (lo uint32) {
	at := r.pos
	if m.memory {
		r.fail(refused(at, "has more than one memory"))
		return 0
	}
	m.memory = true
	switch flags := r.u8(); {
	case flags&4 != 0:
		r.fail(refused(at, "has a memory of 64 bits"))
	case flags&2 != 0:
		r.fail(refused(at, "has a shared memory: threads do not run here"))
	case flags > 1:
		r.fail(malformed(at, "has a memory with unknown limits"))
	default:
		lo = r.u32()
		if flags == 1 {
			r.u32()
		}
	}
	return lo
}
