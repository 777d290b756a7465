package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
)

// diskCache keeps compiled modules in one folder for each content:
// <dir>/<sha256>/wazero-<version>-<arch>-<os>/<entry>, and beside it SUM, which
// names every file with its hash. wazero checks the machine code alone, and a
// damaged table of offsets would be jumped through; SUM covers all of it.
type diskCache struct {
	dir  string
	most int64 // bytes in it
}

const (
	sumFile  = "SUM"
	workMark = ".new-" // in the name of a folder that is not finished
)

// openCache makes the folder, or refuses one that somebody else could write to:
// what lies in it is run as native code.
func openCache(dir string) (*diskCache, error) {
	if dir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open compile cache: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("open compile cache: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open compile cache: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("open compile cache: %w", err)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fmt.Errorf("open compile cache: %s is a symbolic link; name the folder itself", dir)
	case !info.IsDir():
		return nil, fmt.Errorf("open compile cache: %s is not a folder", dir)
	}
	if err := private(dir, info); err != nil {
		return nil, fmt.Errorf("open compile cache: %w", err)
	}
	d := &diskCache{dir: dir, most: maxCache}
	d.sweep(time.Now().Add(-time.Hour))
	d.evict(time.Now())
	return d, nil
}

// entry is one content's folder while its module is being compiled.
type entry struct {
	dir   string // where it is, or will be
	work  string // where wazero reads and writes: dir, or a new folder beside it
	cache wazero.CompilationCache
}

// open gives the folder for wasm, or a new one when there is none yet or it is
// not what was put there. Nil without a cache.
func (d *diskCache) open(wasm []byte, pages uint32, trusted bool) (*entry, error) {
	if d == nil {
		return nil, nil
	}
	key := sha256.New()
	// wasm is what the rewriter made: another rewriter makes other bytes.
	fmt.Fprintf(key, "2 %d %t %x\n", pages, trusted, uint64(features))
	key.Write(wasm)
	e := &entry{dir: filepath.Join(d.dir, hex.EncodeToString(key.Sum(nil)))}
	if want, err := os.ReadFile(filepath.Join(e.dir, sumFile)); err == nil {
		if got, err := sumFolder(e.dir); err == nil && got == string(want) {
			e.work = e.dir
			e.touch(time.Now())
		}
	}
	var err error
	if e.work == "" {
		if e.work, err = os.MkdirTemp(d.dir, filepath.Base(e.dir)+workMark); err != nil {
			return nil, err
		}
	}
	e.cache, err = wazero.NewCompilationCacheWithDir(e.work)
	return e, err
}

// seal writes SUM and puts a new folder in its place. Another process may have
// done so by now; the last one wins, both are right.
func (e *entry) seal() error {
	if e.work == e.dir {
		return nil
	}
	sum, err := sumFolder(e.work)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(e.work, sumFile), []byte(sum), 0o600); err != nil {
		return err
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	return os.Rename(e.work, e.dir)
}

// abandon removes a folder that was not sealed.
func (e *entry) abandon() {
	if e.work != e.dir {
		_ = os.RemoveAll(e.work)
	}
}

// sweep removes what processes that died while compiling left behind.
func (d *diskCache) sweep(olderThan time.Time) {
	left, _ := filepath.Glob(filepath.Join(d.dir, "*"+workMark+"*"))
	for _, dir := range left {
		if info, err := os.Lstat(dir); err == nil && info.ModTime().Before(olderThan) {
			_ = os.RemoveAll(dir)
		}
	}
}

// sumFolder lists the hash and path of every file but SUM itself.
func sumFolder(dir string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), sumFile) {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path)
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		lines = append(lines, hex.EncodeToString(h.Sum(nil))+"  "+filepath.ToSlash(rel)+"\n")
		return err
	})
	sort.Strings(lines)
	return strings.Join(lines, ""), err
}
