//go:build !wasip1

package mqrun

import (
	"fmt"
	"os"
	"sync/atomic"
)

// current is the host that the running Test made; calls outside of a Test meet
// an empty one.
var current atomic.Pointer[nativeHost]

func native() *nativeHost {
	if h := current.Load(); h != nil {
		return h
	}
	return &nativeHost{}
}

func abiInput(dst []byte) int                { return answer(dst, native().in.Data) }
func abiMeta(field int32, dst []byte) int    { return answer(dst, native().text(field)) }
func abiMetaInt(field int32) int64           { return native().number(field) }
func abiHeaders(dst []byte) int              { return answer(dst, native().block) }
func abiEmit(subject string, d []byte) int32 { return int32(native().emit(subject, d)) }
func abiEmitHeader(name, value string) int32 { return int32(native().emitHeader(name, value)) }
func abiReason(text string)                  { native().out.Reason = headerSafe(text) }
func abiRetryAfter(ms uint32)                { native().delay(ms) }

func abiHeader(name string, index int, dst []byte) int {
	value, ok := native().header(name, index)
	if !ok {
		return int(ErrAbsent)
	}
	return answer(dst, value)
}

func abiConfig(key string, dst []byte) int {
	value, ok := native().config(key)
	if !ok {
		return int(ErrAbsent)
	}
	return answer(dst, value)
}

func abiLog(level Level, text string) {
	h := current.Load()
	if h == nil {
		fmt.Fprintln(os.Stderr, text)
		return
	}
	h.log(level, text)
}

// answer is the ABI's read rule: copy what fits, return the full length.
func answer[T []byte | string](dst []byte, value T) int {
	copy(dst, value)
	return len(value)
}
