package host

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// The errnos of WASI preview 1 that are used here.
const (
	wasiOK    = 0
	wasiBadf  = 8
	wasiFault = 21
	wasiInval = 28
	wasiNosys = 52
	wasiPipe  = 70 // ESPIPE: a seek on what is a stream
)

// wasiFuncs is WASI preview 1 without a file system or network: what links, so
// that std Go, Rust, C and AssemblyScript modules load, and what works: clocks,
// random numbers, sleep, and stdout and stderr, which go to the log.
func wasiFuncs() []hostFunc {
	w := func(name, params string, run func(*call, api.Memory, []uint64) uint64) hostFunc {
		return hostFunc{fn(name, params, "i32", ""), func(c *call, mem api.Memory, s []uint64) { s[0] = run(c, mem, s) }}
	}
	badf := func(name, params string) hostFunc {
		return w(name, params, func(*call, api.Memory, []uint64) uint64 { return wasiBadf })
	}
	return []hostFunc{
		w("args_get", "argv buf", argsGet),
		w("args_sizes_get", "argc len", argsSizes),
		w("environ_get", "environ buf", func(c *call, mem api.Memory, s []uint64) uint64 { return putStrings(mem, s, c.plugin.environ) }),
		w("environ_sizes_get", "count len", func(c *call, mem api.Memory, s []uint64) uint64 { return putSizes(mem, s, c.plugin.environ) }),
		w("clock_res_get", "id result", clockRes),
		w("clock_time_get", "id precision:i64 result", clockTime),
		w("fd_advise", "fd offset:i64 len:i64 advice", stdio(wasiPipe)),
		w("fd_allocate", "fd offset:i64 len:i64", stdio(wasiPipe)),
		w("fd_close", "fd", stdio(wasiOK)),
		w("fd_datasync", "fd", stdio(wasiOK)),
		w("fd_fdstat_get", "fd result", fdstat),
		w("fd_fdstat_set_flags", "fd flags", stdio(wasiOK)),
		w("fd_fdstat_set_rights", "fd base:i64 inheriting:i64", stdio(wasiOK)),
		w("fd_filestat_get", "fd result", filestat),
		w("fd_filestat_set_size", "fd size:i64", stdio(wasiInval)),
		w("fd_filestat_set_times", "fd atim:i64 mtim:i64 flags", stdio(wasiInval)),
		w("fd_pread", "fd iovs n offset:i64 result", stdio(wasiPipe)),
		badf("fd_prestat_get", "fd result"),
		badf("fd_prestat_dir_name", "fd path len"),
		w("fd_pwrite", "fd iovs n offset:i64 result", stdio(wasiPipe)),
		w("fd_read", "fd iovs n result", fdRead),
		badf("fd_readdir", "fd buf len cookie:i64 result"),
		badf("fd_renumber", "fd to"),
		w("fd_seek", "fd offset:i64 whence result", stdio(wasiPipe)),
		w("fd_sync", "fd", stdio(wasiOK)),
		w("fd_tell", "fd result", stdio(wasiPipe)),
		w("fd_write", "fd iovs n result", fdWrite),
		badf("path_create_directory", "fd path len"),
		badf("path_filestat_get", "fd flags path len result"),
		badf("path_filestat_set_times", "fd flags path len atim:i64 mtim:i64 fst_flags"),
		badf("path_link", "old_fd flags path len new_fd new_path new_len"),
		badf("path_open", "fd dirflags path len oflags base:i64 inheriting:i64 fdflags result"),
		badf("path_readlink", "fd path len buf buf_len result"),
		badf("path_remove_directory", "fd path len"),
		badf("path_rename", "fd path len new_fd new_path new_len"),
		badf("path_symlink", "path len fd new_path new_len"),
		badf("path_unlink_file", "fd path len"),
		w("poll_oneoff", "in out n result", poll),
		{fn("proc_exit", "code", "", ""), procExit},
		w("proc_raise", "signal", func(*call, api.Memory, []uint64) uint64 { return wasiNosys }),
		w("sched_yield", "", func(*call, api.Memory, []uint64) uint64 { runtime.Gosched(); return wasiOK }),
		w("random_get", "buf len", randomGet),
		badf("sock_accept", "fd flags result"),
		badf("sock_recv", "fd iovs n flags read out_flags"),
		badf("sock_send", "fd iovs n flags written"),
		badf("sock_shutdown", "fd how"),
	}
}

// stdio answers code for the three standard streams and EBADF for the rest.
func stdio(code uint64) func(*call, api.Memory, []uint64) uint64 {
	return func(_ *call, _ api.Memory, s []uint64) uint64 {
		if uint32(s[0]) > 2 {
			return wasiBadf
		}
		return code
	}
}

// putPair writes two words through the pointers in s[0] and s[1].
func putPair(mem api.Memory, s []uint64, a, b uint32) uint64 {
	if !mem.WriteUint32Le(uint32(s[0]), a) || !mem.WriteUint32Le(uint32(s[1]), b) {
		return wasiFault
	}
	return wasiOK
}

// argv: a program's own name is no secret, and many read it unasked.
func (c *call) argv() []string {
	return append([]string{c.plugin.settings.Name}, c.plugin.settings.Args...)
}

func argsSizes(c *call, mem api.Memory, s []uint64) uint64 { return putSizes(mem, s, c.argv()) }

func argsGet(c *call, mem api.Memory, s []uint64) uint64 { return putStrings(mem, s, c.argv()) }

// putSizes writes how many strings there are, and their bytes with a zero each.
func putSizes(mem api.Memory, s []uint64, list []string) uint64 {
	n := 0
	for _, a := range list {
		n += len(a) + 1
	}
	return putPair(mem, s, uint32(len(list)), uint32(n))
}

// putStrings writes the strings to s[1], and where each begins to s[0].
func putStrings(mem api.Memory, s []uint64, list []string) uint64 {
	at, buf := uint32(s[0]), uint32(s[1])
	for _, a := range list {
		if !mem.WriteUint32Le(at, buf) || !mem.WriteString(buf, a) || !mem.WriteByte(buf+uint32(len(a)), 0) {
			return wasiFault
		}
		at, buf = at+4, buf+uint32(len(a))+1
	}
	return wasiOK
}

// Clocks: 0 is wall time, 1 is monotonic; the two CPU clocks are not offered.
func clockRes(_ *call, mem api.Memory, s []uint64) uint64 {
	if uint32(s[0]) > 1 {
		return wasiInval
	}
	if !mem.WriteUint64Le(uint32(s[1]), 1) {
		return wasiFault
	}
	return wasiOK
}

func clockTime(c *call, mem api.Memory, s []uint64) uint64 {
	if uint32(s[0]) > 1 {
		return wasiInval
	}
	if !mem.WriteUint64Le(uint32(s[2]), c.clock(uint32(s[0]))) {
		return wasiFault
	}
	return wasiOK
}

// clock in ns. The monotonic one starts at a value above zero, which some take for "not set".
func (c *call) clock(id uint32) uint64 {
	if id == 0 {
		return uint64(time.Now().UnixNano())
	}
	return uint64(time.Since(c.plugin.born)) + 1
}

// fdstat says that the standard streams are character devices.
func fdstat(_ *call, mem api.Memory, s []uint64) uint64 {
	if uint32(s[0]) > 2 {
		return wasiBadf
	}
	var b [24]byte
	b[0] = 2
	binary.LittleEndian.PutUint64(b[8:], 1<<1|1<<6) // rights: fd_read, fd_write
	if !mem.Write(uint32(s[1]), b[:]) {
		return wasiFault
	}
	return wasiOK
}

func filestat(_ *call, mem api.Memory, s []uint64) uint64 {
	if uint32(s[0]) > 2 {
		return wasiBadf
	}
	var b [64]byte
	b[16] = 2
	if !mem.Write(uint32(s[1]), b[:]) {
		return wasiFault
	}
	return wasiOK
}

// fdRead: stdin is at its end.
func fdRead(_ *call, mem api.Memory, s []uint64) uint64 {
	switch {
	case uint32(s[0]) != 0:
		return wasiBadf
	case !mem.WriteUint32Le(uint32(s[3]), 0):
		return wasiFault
	}
	return wasiOK
}

// maxIovs is what POSIX systems take in one writev.
const maxIovs = 1024

func fdWrite(c *call, mem api.Memory, s []uint64) uint64 {
	fd, n := uint32(s[0]), uint32(s[2])
	switch {
	case fd != 1 && fd != 2:
		return wasiBadf
	case n > maxIovs:
		return wasiInval
	}
	iovs, ok := mem.Read(uint32(s[1]), n*8)
	if !ok {
		return wasiFault
	}
	var written uint64
	for ; len(iovs) > 0; iovs = iovs[8:] {
		b, ok := mem.Read(binary.LittleEndian.Uint32(iovs), binary.LittleEndian.Uint32(iovs[4:]))
		if !ok {
			return wasiFault
		}
		for len(b) > 0 && written < math.MaxInt32 {
			piece := b[:min(len(b), Piece)]
			c.look()
			c.log.write(c, int(fd-1), piece)
			b = b[len(piece):]
			written += uint64(len(piece))
		}
	}
	if !mem.WriteUint32Le(uint32(s[3]), uint32(written)) {
		return wasiFault
	}
	return wasiOK
}

func randomGet(c *call, mem api.Memory, s []uint64) uint64 {
	b, ok := mem.Read(uint32(s[0]), uint32(s[1]))
	if !ok {
		return wasiFault
	}
	for len(b) > 0 {
		c.look()
		n := min(len(b), Piece)
		_, _ = rand.Read(b[:n]) // never fails
		b = b[n:]
	}
	return wasiOK
}

func exitText(code uint32) string { return fmt.Sprintf("exited with code %d", code) }

// procExit ends the call: a handler that exits gave no verdict, not even with 0.
func procExit(_ *call, _ api.Memory, s []uint64) {
	panic(&fault{reason: ReasonExit, text: exitText(uint32(s[0]))})
}
