package watch

import (
	"os"
	"time"
)

// ID tells two states of a file apart without reading it: which file it is, its
// size, and when it was changed. The zero ID is no file.
type ID struct {
	device, inode    uint64
	size             int64
	written, changed int64 // unix ns
}

// IDOf is that of a file of which os.Stat, or Stat of the open file, said info.
func IDOf(info os.FileInfo) ID {
	id := ID{size: info.Size(), written: info.ModTime().UnixNano()}
	id.fill(info)
	return id
}

// Sure reports whether a write after then would show in the ID: not when the
// file was changed so shortly before that its times may be too coarse.
func (id ID) Sure(then time.Time) bool {
	return then.UnixNano()-max(id.written, id.changed) >= coarse.Nanoseconds()
}

// place is the part that tells which file it is.
func (id ID) place() ID { return ID{device: id.device, inode: id.inode} }
