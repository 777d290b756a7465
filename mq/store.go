package mq

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Format is the number of the store format this package writes: the layout of
// the folder, the names of streams, ids, subjects and headers.
const Format = 1

// store is an open store directory. It holds the lock until closed.
type store struct {
	dir  string
	lock *os.File
}

// openStore makes dir when missing, proves that it can be written, takes the
// lock and checks the format.
func openStore(dir string) (*store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find store %q: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("make store %q: %w; choose another folder or fix its permissions", abs, reason(err))
	}
	for _, d := range []string{abs, filepath.Join(abs, "jetstream")} {
		if err := writable(d); err != nil && !(d != abs && errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("write to store %q: %w; choose another folder or fix its permissions", d, reason(err))
		}
	}
	f, err := lockFile(filepath.Join(abs, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("lock store %q: %w", abs, err)
	}
	s := &store{dir: abs, lock: f}
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *store) close() error { return unlockFile(s.lock) }

// checkFormat refuses a store that a newer version wrote, and marks a new one.
func (s *store) checkFormat() error {
	path := filepath.Join(s.dir, "FORMAT")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return writeFile(path, strconv.AppendInt(nil, Format, 10))
	}
	if err != nil {
		return fmt.Errorf("read store format: %w", err)
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	switch {
	case err != nil || n < 1:
		return fmt.Errorf("read store format: %s holds %q, not a number; restore the store from a backup, or write %d to the file if this version made it", path, text, Format)
	case n > Format:
		return fmt.Errorf("open store %q: %w: it has format %d, this version knows %d; use the version that wrote it, or another folder", s.dir, ErrStoreNewer, n, Format)
	}
	return nil
}

// writable proves that a file can be made in dir. Permission bits alone do not
// tell: a file system can be read-only or full.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeFile puts data in place as a whole: a crash leaves the old file or the
// new one.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// reason drops the path of a file error: the text around it names the folder.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
