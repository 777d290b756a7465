package host

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

var errTruncated = errors.New("ends in the middle of a section")

// reader walks a module's bytes. After the first error everything reads as zero.
type reader struct {
	b   []byte
	pos int
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) byte() byte {
	if r.err != nil || r.pos >= len(r.b) {
		r.fail(errTruncated)
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

// u32 reads an unsigned LEB128 of at most five bytes.
func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail(fmt.Errorf("holds a number that is too large at byte %d", r.pos))
	return 0
}

// u64 is for the limits of 64-bit memories, which do not run here but must be read over.
func (r *reader) u64() uint64 {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.fail(fmt.Errorf("holds a number that is too large at byte %d", r.pos))
	return 0
}

// count of entries; each has at least one byte, so a larger one is a lie.
func (r *reader) count() int {
	n := r.u32()
	if int64(n) > int64(len(r.b)-r.pos) {
		r.fail(errTruncated)
		return 0
	}
	return int(n)
}

func (r *reader) bytes(n uint32) []byte {
	if r.err != nil || int64(n) > int64(len(r.b)-r.pos) {
		r.fail(errTruncated)
		return nil
	}
	r.pos += int(n)
	return r.b[r.pos-int(n) : r.pos]
}

func (r *reader) name() string {
	b := r.bytes(r.u32())
	if !utf8.Valid(b) {
		r.fail(fmt.Errorf("holds a name that is not UTF-8 before byte %d", r.pos))
	}
	return string(b)
}

// section gives the body that follows a section's id.
func (r *reader) section() *reader { return &reader{b: r.bytes(r.u32())} }

func (r *reader) limits() (lo, hi uint32, has bool) {
	flag := r.byte()
	has = flag&1 != 0
	if flag&4 == 0 {
		lo = r.u32()
		if has {
			hi = r.u32()
		}
		return lo, hi, has
	}
	lo = uint32(min(r.u64(), 1<<32-1))
	if has {
		hi = uint32(min(r.u64(), 1<<32-1))
	}
	return lo, hi, has
}

// table reads one table type; ok is false for a form that is not read here.
func (r *reader) table() (lo, hi uint32, ok bool) {
	if t := r.byte(); t != 0x70 && t != 0x6f {
		return 0, 0, false
	}
	lo, hi, _ = r.limits()
	return lo, hi, true
}

// funcType in the form "(i32, i32) -> i32".
func (r *reader) funcType() string {
	if form := r.byte(); form != 0x60 && r.err == nil {
		r.fail(fmt.Errorf("uses a type (form 0x%x) that mqrun does not run", form))
		return ""
	}
	params := r.types()
	return signature(params, r.types())
}

func (r *reader) types() []string {
	n := r.count()
	ts := make([]string, 0, n)
	for ; n > 0; n-- {
		switch b := r.byte(); b {
		case 0x7f:
			ts = append(ts, "i32")
		case 0x7e:
			ts = append(ts, "i64")
		case 0x7d:
			ts = append(ts, "f32")
		case 0x7c:
			ts = append(ts, "f64")
		case 0x7b:
			ts = append(ts, "v128")
		case 0x70:
			ts = append(ts, "funcref")
		case 0x6f:
			ts = append(ts, "externref")
		default:
			r.fail(fmt.Errorf("uses a value type (0x%x) that mqrun does not run", b))
		}
	}
	return ts
}
