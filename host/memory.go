package host

import "github.com/tetratelabs/wazero/experimental"

// arena makes the linear memories of one instance and can free them when wazero
// does not: a failed instantiation never does.
type arena struct {
	budget   *budget
	held     int64 // of the budget, in bytes
	refused  bool  // the budget had no more
	memories []experimental.LinearMemory
}

func (a *arena) Allocate(_, limit uint64) experimental.LinearMemory {
	m := mapMemory(limit)
	if m == nil {
		m = &heapMemory{}
	}
	a.memories = append(a.memories, m)
	return &counted{LinearMemory: m, arena: a}
}

// hold takes from the budget until size bytes are held.
func (a *arena) hold(size int64) bool {
	more := size - a.held
	if more <= 0 {
		return true
	}
	if !a.budget.take(more) {
		a.refused = true
		return false
	}
	a.held = size
	return true
}

func (a *arena) free() {
	for _, m := range a.memories {
		m.Free()
	}
	a.memories = nil
	a.budget.give(a.held)
	a.held = 0
}

// counted is a memory that asks the budget before it grows.
type counted struct {
	experimental.LinearMemory
	arena *arena
}

func (c *counted) Reallocate(size uint64) []byte {
	had := c.arena.held
	if !c.arena.hold(int64(size)) {
		return nil
	}
	b := c.LinearMemory.Reallocate(size)
	if b == nil {
		c.arena.budget.give(c.arena.held - had)
		c.arena.held = had
	}
	return b
}

// heapMemory is the fallback: a slice on Go's heap.
type heapMemory struct{ b []byte }

func (m *heapMemory) Reallocate(size uint64) []byte {
	if size > uint64(cap(m.b)) {
		b := make([]byte, size, max(size, min(2*uint64(cap(m.b)), size+16<<20)))
		copy(b, m.b)
		m.b = b
	}
	m.b = m.b[:size]
	return m.b[:size:size]
}

func (m *heapMemory) Free() { m.b = nil }
