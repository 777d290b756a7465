//go:build wasip1

// Gomin is the smallest Go guest: it echoes, or adds up all bytes of a payload
// that is larger than 4 KiB.
package main

import "unsafe"

//go:wasmimport mqrun_v1 input
func input(ptr unsafe.Pointer, room uint32) uint32

//go:wasmimport mqrun_v1 emit
func emit(subj unsafe.Pointer, slen uint32, ptr unsafe.Pointer, n uint32) int32

var buf [1 << 17]byte

func main() {}

//go:wasmexport mq_handle
func handle(size uint32) int32 {
	if size > uint32(len(buf)) {
		return 2
	}
	input(unsafe.Pointer(&buf), size)
	if size <= 4096 {
		return -emit(nil, 0, unsafe.Pointer(&buf), size)
	}
	var sum uint32
	for _, b := range buf[:size] {
		sum = sum*31 + uint32(b)
	}
	return -emit(nil, 0, unsafe.Pointer(&sum), 4)
}
