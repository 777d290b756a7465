//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package mq

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// lockFile makes path, which must not exist: this system has no lock that ends
// with the process, so a crash leaves the file behind.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w by another process; stop it, or remove %s when none runs", ErrStoreLocked, path)
	}
	return f, err
}

func unlockFile(f *os.File) error { return errors.Join(f.Close(), os.Remove(f.Name())) }
