//go:build unix

package host

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// mappedMemory reserves all that a memory may ever need and opens it as it
// grows: growing copies nothing, and dropping it gives the pages back at once.
type mappedMemory struct {
	b    []byte // the whole reservation
	open uint64 // bytes that may be touched
}

// mapMemory returns nil when the system gives no mapping.
func mapMemory(limit uint64) experimental.LinearMemory {
	if limit == 0 || uint64(int(limit)) != limit {
		return nil
	}
	b, err := unix.Mmap(-1, 0, int(limit), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil
	}
	return &mappedMemory{b: b}
}

func (m *mappedMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.b)) {
		return nil
	}
	if size > m.open {
		if err := unix.Mprotect(m.b[m.open:size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return nil
		}
		m.open = size
	}
	return m.b[:size:size]
}

// freePiece is how much is given back at once: the kernel holds up whoever else
// wants memory meanwhile.
const freePiece = 1 << 20

func (m *mappedMemory) Free() {
	if m.b != nil {
		for at := uint64(0); at+freePiece < m.open; at += freePiece {
			_ = unix.Madvise(m.b[at:at+freePiece], unix.MADV_DONTNEED) // unmapping does it too
		}
		_ = unix.Munmap(m.b) // only fails for a slice that is not a mapping
		m.b, m.open = nil, 0
	}
}
