package meter

import (
	"math"
	"unicode/utf8"
)

// reader walks part of a module; pos and end are offsets into the whole of it.
// After the first error everything reads as zero and the reader is at its end.
type reader struct {
	b        []byte
	pos, end int
	err      *Error
}

func (r *reader) more() bool { return r.pos < r.end }

func (r *reader) fail(err *Error) {
	if r.err == nil {
		r.err = err
	}
	r.pos = r.end
}

func (r *reader) truncated() { r.fail(malformed(r.pos, "ends in the middle of something")) }

func (r *reader) u8() byte {
	if r.pos >= r.end {
		r.truncated()
		return 0
	}
	v := r.b[r.pos]
	r.pos++
	return v
}

// u32 reads an unsigned LEB128 of at most five bytes.
func (r *reader) u32() uint32 {
	if r.pos < r.end && r.b[r.pos] < 0x80 { // nearly all of them
		r.pos++
		return uint32(r.b[r.pos-1])
	}
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		c := r.u8()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if v > math.MaxUint32 {
				break
			}
			return uint32(v)
		}
	}
	r.fail(malformed(r.pos, "holds a number that is too large"))
	return 0
}

// signed reads a signed LEB128 of at most size bytes.
func (r *reader) signed(size int) int64 {
	var v int64
	for i := range size {
		c := r.u8()
		v |= int64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if s := 7 * (i + 1); s < 64 && c&0x40 != 0 {
				v |= -1 << s
			}
			return v
		}
	}
	r.fail(malformed(r.pos, "holds a number that is too large"))
	return 0
}

// s32 is also used for the 33-bit numbers of block and heap types.
func (r *reader) s32() int64 { return r.signed(5) }

func (r *reader) bytes(n uint32) []byte {
	if int64(n) > int64(r.end-r.pos) {
		r.truncated()
		return nil
	}
	r.pos += int(n)
	return r.b[r.pos-int(n) : r.pos]
}

func (r *reader) skip(n int) {
	if n > r.end-r.pos {
		r.truncated()
		return
	}
	r.pos += n
}

// count of entries that take at least one byte each: a larger one is a lie that
// must not become an allocation, here or in the compiler.
func (r *reader) count() int {
	at := r.pos
	n := r.u32()
	if int64(n) > int64(r.end-r.pos) {
		r.fail(malformed(at, "counts more entries than there are bytes"))
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	at := r.pos
	b := r.bytes(r.u32())
	if !utf8.Valid(b) {
		r.fail(malformed(at, "holds a name that is not UTF-8"))
		return ""
	}
	return string(b)
}

// sub is a reader of the next n bytes, which are skipped here.
func (r *reader) sub(n uint32) reader {
	at := r.pos
	r.bytes(n)
	return reader{b: r.b, pos: at, end: r.pos, err: r.err}
}

// done says what went wrong, bytes that nobody read included.
func (r *reader) done() error {
	if r.err == nil && r.pos != r.end {
		r.err = malformed(r.pos, "has bytes left over after a section's last entry")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}
