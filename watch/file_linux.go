package watch

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func (id *ID) fill(info os.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode, id.changed = uint64(st.Dev), st.Ino, st.Ctim.Nano()
	}
}

// beingWritten reports whether somebody has the file open for writing: then a
// read lease is refused. Where there are none, or the file is another user's,
// it says no.
func beingWritten(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}

// remote names the network file system that a folder is on, or "".
func remote(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	return map[uint32]string{
		unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb2", unix.CIFS_SUPER_MAGIC: "cifs",
		unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p", unix.CEPH_SUPER_MAGIC: "ceph", unix.AFS_SUPER_MAGIC: "afs",
		unix.NCP_SUPER_MAGIC: "ncp", unix.CODA_SUPER_MAGIC: "coda", 0x19830326: "fhgfs", 0x0bd00bd0: "lustre", 0x786f4256: "vboxsf",
	}[uint32(st.Type)] //nolint:gosec // a number that the kernel defines as one of 32 bits
}
