package host

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"time"
	"unicode/utf16"

	"github.com/tetratelabs/wazero/api"
)

// envFuncs are what AssemblyScript's compiler imports by itself.
func envFuncs() []hostFunc {
	return []hostFunc{
		{fn("abort", "message file line column", "", "an AssemblyScript error that nobody caught"), abort},
		{fn("trace", "message n a0:f64 a1:f64 a2:f64 a3:f64 a4:f64", "", "AssemblyScript's trace"), trace},
		{fn("seed", "", "f64", "seed of Math.random"), seed},
		{fn("Date.now", "", "f64", "ms since 1970"), dateNow},
	}
}

func abort(c *call, mem api.Memory, s []uint64) {
	said := asString(mem, uint32(s[0]))
	file := asString(mem, uint32(s[1]))
	if said == "" {
		said = "abort"
	}
	if file != "" {
		said += fmt.Sprintf(" at %s:%d:%d", file, uint32(s[2]), uint32(s[3]))
	}
	panic(&fault{reason: ReasonTrap, text: "trapped: abort", guest: said})
}

// asString reads an AssemblyScript string: UTF-16, its length in bytes in the
// word before it. A pointer that is none reads as "": the guest has failed already.
func asString(mem api.Memory, ptr uint32) string {
	n, ok := mem.ReadUint32Le(ptr - 4)
	if ptr < 4 || !ok {
		return ""
	}
	b, ok := mem.Read(ptr, min(n, MaxPanicText)&^1)
	if !ok {
		return ""
	}
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(u))
}

func trace(c *call, mem api.Memory, s []uint64) {
	c.look()
	line := asString(mem, uint32(s[0]))
	for i := range min(uint32(s[1]), 5) {
		line += fmt.Sprintf(" %v", math.Float64frombits(s[2+i]))
	}
	c.log.add(c, slog.LevelInfo, "trace", []byte(line), 0)
}

func seed(_ *call, _ api.Memory, s []uint64) {
	var b [8]byte
	_, _ = rand.Read(b[:])                              // never fails
	s[0] = binary.LittleEndian.Uint64(b[:])>>12 | 1<<62 // a finite float of random digits
}

func dateNow(_ *call, _ api.Memory, s []uint64) {
	s[0] = math.Float64bits(float64(time.Now().UnixMilli()))
}
