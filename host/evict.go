package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The compile cache holds at most so many bytes, and nothing that was not used for
// so long. What was used last goes last, and one module always stays.
const (
	maxCache = 1 << 30
	maxIdle  = 30 * 24 * time.Hour
)

// sealed is an entry that is complete.
type sealed struct {
	dir  string
	size int64
	used time.Time // when it was made or opened last: the folder's time
}

// touch notes that an entry is used.
func (e *entry) touch(now time.Time) { _ = os.Chtimes(e.dir, now, now) }

// evict removes what is too much. Another process may be reading it: then it finds
// that the entry is not what it was, and compiles.
func (d *diskCache) evict(now time.Time) {
	all := d.entries()
	slices.SortFunc(all, func(a, b sealed) int { return b.used.Compare(a.used) })
	total := int64(0)
	for i, k := range all {
		if total += k.size; i > 0 && total > d.most || now.Sub(k.used) > maxIdle {
			_ = os.RemoveAll(k.dir)
			total -= k.size
		}
	}
}

// entries lists what is sealed. What cannot be read is somebody else's to remove.
func (d *diskCache) entries() (all []sealed) {
	sums, _ := filepath.Glob(filepath.Join(d.dir, "*", sumFile))
	for _, sum := range sums {
		info, err := os.Lstat(filepath.Dir(sum))
		if err != nil {
			continue
		}
		k := sealed{dir: filepath.Dir(sum), used: info.ModTime()}
		_ = filepath.WalkDir(k.dir, func(_ string, f fs.DirEntry, err error) error {
			if err != nil || f.IsDir() {
				return err
			}
			if info, err := f.Info(); err == nil {
				k.size += info.Size()
			}
			return nil
		})
		all = append(all, k)
	}
	return all
}
