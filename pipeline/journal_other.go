//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pipeline

import (
	"encoding/binary"
	"os"
)

// memory is a part of a file, written through the system's cache, which
// outlives the process as a mapping does.
type memory struct {
	f   *os.File
	off int64
}

func mapMemory(f *os.File, off int64, _ int) (memory, error) { return memory{f, off}, nil }

func (m memory) at(off, _ int) memory { return memory{m.f, m.off + int64(off)} }

func (m memory) unmap() error { return nil }

func (m memory) put32(off int, v uint32) {
	m.write(off, binary.NativeEndian.AppendUint32(nil, v))
}

func (m memory) put64(off int, v uint64) {
	m.write(off, binary.NativeEndian.AppendUint64(nil, v))
}

// write has nobody to tell of an error: a message that is not in the journal
// is handled all the same.
func (m memory) write(off int, p []byte) { _, _ = m.f.WriteAt(p, m.off+int64(off)) }

// lockJournal does nothing: the store's lock keeps a second process off.
func lockJournal(*os.File) error { return nil }

func unlockJournal(*os.File) {}
