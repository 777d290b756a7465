package mqrun

import (
	"syscall"
	"unsafe"
)

// The host's functions take pointers that only live for the call, hence noescape.

//go:wasmimport mqrun_v1 input
//go:noescape
func hostInput(ptr unsafe.Pointer, size int32) int32

//go:wasmimport mqrun_v1 meta
//go:noescape
func hostMeta(field int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport mqrun_v1 meta_i64
func hostMetaInt(field int32) int64

//go:wasmimport mqrun_v1 header
//go:noescape
func hostHeader(name unsafe.Pointer, nameLen, index int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport mqrun_v1 headers
//go:noescape
func hostHeaders(ptr unsafe.Pointer, size int32) int32

//go:wasmimport mqrun_v1 config
//go:noescape
func hostConfig(key unsafe.Pointer, keyLen int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport mqrun_v1 emit
//go:noescape
func hostEmit(subject unsafe.Pointer, subjectLen int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport mqrun_v1 emit_header
//go:noescape
func hostEmitHeader(name unsafe.Pointer, nameLen int32, value unsafe.Pointer, valueLen int32) int32

//go:wasmimport mqrun_v1 reason
//go:noescape
func hostReason(ptr unsafe.Pointer, size int32)

//go:wasmimport mqrun_v1 retry_after
func hostRetryAfter(ms uint32)

//go:wasmimport mqrun_v1 log
//go:noescape
func hostLog(level int32, ptr unsafe.Pointer, size int32)

//go:wasmexport mq_init
func mqInit() int32 { return guest.start() }

//go:wasmexport mq_handle
func mqHandle(size int32) int32 { return guest.call(int(size)) }

// Main is what a plugin's func main calls. It runs only when the module was
// built as a command, which mqrun cannot call: it says so and exits with 64.
// Built natively, it runs the handler over the lines of standard input.
func Main() {
	println("mqrun: this module is a command; build the plugin with -buildmode=c-shared")
	syscall.Exit(64)
}

func at(b []byte) unsafe.Pointer      { return unsafe.Pointer(unsafe.SliceData(b)) }
func atText(s string) unsafe.Pointer  { return unsafe.Pointer(unsafe.StringData(s)) }
func abiInput(dst []byte) int         { return int(hostInput(at(dst), int32(len(dst)))) }
func abiMetaInt(field int32) int64    { return hostMetaInt(field) }
func abiHeaders(dst []byte) int       { return int(hostHeaders(at(dst), int32(len(dst)))) }
func abiReason(text string)           { hostReason(atText(text), int32(len(text))) }
func abiRetryAfter(ms uint32)         { hostRetryAfter(ms) }
func abiLog(level Level, text string) { hostLog(int32(level), atText(text), int32(len(text))) }

func abiMeta(field int32, dst []byte) int {
	return int(hostMeta(field, at(dst), int32(len(dst))))
}

func abiHeader(name string, index int, dst []byte) int {
	return int(hostHeader(atText(name), int32(len(name)), int32(index), at(dst), int32(len(dst))))
}

func abiConfig(key string, dst []byte) int {
	return int(hostConfig(atText(key), int32(len(key)), at(dst), int32(len(dst))))
}

func abiEmit(subject string, data []byte) int32 {
	return hostEmit(atText(subject), int32(len(subject)), at(data), int32(len(data)))
}

func abiEmitHeader(name, value string) int32 {
	return hostEmitHeader(atText(name), int32(len(name)), atText(value), int32(len(value)))
}
