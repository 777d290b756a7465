package host

import (
	"encoding/binary"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// maxPoll bounds the subscriptions of one poll_oneoff.
const maxPoll = 1024

// poll is poll_oneoff. Sleeping ends with the call. stdin is at its end and
// stdout takes everything, so whoever waits for them is served at once.
func poll(c *call, mem api.Memory, s []uint64) uint64 {
	n := uint32(s[2])
	if n == 0 || n > maxPoll {
		return wasiInval
	}
	in, ok := mem.Read(uint32(s[0]), n*48)
	if !ok {
		return wasiFault
	}
	if out, ok := mem.Read(uint32(s[1]), n*32); !ok || len(out) == 0 {
		return wasiFault
	}
	wait, code := c.shortest(in)
	if code != wasiOK {
		return code
	}
	c.sleep(wait)
	// in and out may overlap: every event is worked out before the first is written.
	events := make([]byte, 0, 64)
	for ; len(in) > 0; in = in[48:] {
		var e [32]byte
		copy(e[:8], in[:8])
		e[10] = in[8]
		if in[8] == 0 {
			if d, _ := c.until(in); d > 0 && d > wait {
				continue
			}
		} else if fd := binary.LittleEndian.Uint32(in[16:]); fd > 2 {
			e[8] = wasiBadf
		}
		events = append(events, e[:]...)
	}
	mem.Write(uint32(s[1]), events)
	if !mem.WriteUint32Le(uint32(s[3]), uint32(len(events)/32)) {
		return wasiFault
	}
	return wasiOK
}

// shortest is how long to sleep: not at all when a stream is waited for.
func (c *call) shortest(in []byte) (time.Duration, uint64) {
	wait := time.Duration(1<<63 - 1)
	for ; len(in) > 0; in = in[48:] {
		switch in[8] {
		case 0:
			d, ok := c.until(in)
			if !ok {
				return 0, wasiInval
			}
			wait = min(wait, d)
		case 1, 2:
			wait = 0
		default:
			return 0, wasiInval
		}
	}
	return wait, wasiOK
}

// until reads a clock subscription. ok is false for a clock that is not offered.
func (c *call) until(sub []byte) (d time.Duration, ok bool) {
	id, ns := binary.LittleEndian.Uint32(sub[16:]), binary.LittleEndian.Uint64(sub[24:])
	if id > 1 {
		return 0, false
	}
	if sub[40]&1 != 0 { // absolute
		now := c.clock(id)
		if ns <= now {
			return 0, true
		}
		ns -= now
	}
	return time.Duration(min(ns, 1<<63-1)), true
}
