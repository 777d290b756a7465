//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mq

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockFile opens path and locks it for as long as the file is open. The kernel
// lets go when the process ends, however it ends. The file stays: removing it
// would let two processes lock two files of one name.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		who := "another process"
		if b, _ := os.ReadFile(path); len(b) > 0 {
			who = "process " + strings.TrimSpace(string(b))
		}
		return nil, errors.Join(fmt.Errorf("%w by %s; stop it, or choose another folder", ErrStoreLocked, who), f.Close())
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	// The number is for the message above only.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

func unlockFile(f *os.File) error { return f.Close() }
