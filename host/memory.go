package host

import "github.com/tetratelabs/wazero/experimental"

// arena makes the linear memories of one instance and can free them when wazero
// does not: a failed instantiation never does.
type arena struct{ memories []experimental.LinearMemory }

func (a *arena) Allocate(_, limit uint64) experimental.LinearMemory {
	m := mapMemory(limit)
	if m == nil {
		m = &heapMemory{}
	}
	a.memories = append(a.memories, m)
	return m
}

func (a *arena) free() {
	for _, m := range a.memories {
		m.Free()
	}
	a.memories = nil
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
