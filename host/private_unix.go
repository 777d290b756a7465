//go:build unix

package host

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// private refuses a folder that others own or can get into.
func private(dir string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to us (%d); it holds native code: use a folder of our own", dir, st.Uid, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o; it holds native code: chmod 700 %[1]s", dir, perm)
	}
	return nil
}
