//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pipeline

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// memory is a mapped part of a file. Offsets of numbers are aligned.
type memory struct{ b, mapping []byte }

func mapMemory(f *os.File, off int64, n int) (memory, error) {
	// A mapping begins at a page; the rest of it is not touched.
	page := int64(os.Getpagesize())
	skip := off % page
	b, err := syscall.Mmap(int(f.Fd()), off-skip, n+int(skip), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return memory{}, err
	}
	return memory{b[skip:], b}, nil
}

func (m memory) at(off, n int) memory { return memory{b: m.b[off : off+n : off+n]} }

func (m memory) unmap() error { return syscall.Munmap(m.mapping) }

func (m memory) put32(off int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&m.b[off])), v)
}

func (m memory) put64(off int, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&m.b[off])), v)
}

func (m memory) write(off int, p []byte) { copy(m.b[off:], p) }

// lockJournal keeps a second process off the file.
func lockJournal(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another process uses it; give each a folder of its own")
	}
	return nil // some network file systems know no locks
}

// unlockJournal is needed because a mapping keeps the lock of a closed file.
func unlockJournal(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
