//go:build wasip1

// Gojson reads JSON and writes it again.
package main

import (
	"encoding/json"
	"unsafe"
)

//go:wasmimport mqrun_v1 input
func input(ptr unsafe.Pointer, room uint32) uint32

//go:wasmimport mqrun_v1 emit
func emit(subj unsafe.Pointer, slen uint32, ptr unsafe.Pointer, n uint32) int32

func main() {}

//go:wasmexport mq_handle
func handle(size uint32) int32 {
	buf := make([]byte, size+1)
	input(unsafe.Pointer(&buf[0]), size)
	var v map[string]any
	if err := json.Unmarshal(buf[:size], &v); err != nil {
		return 2
	}
	out, err := json.Marshal(v)
	if err != nil {
		return 2
	}
	return -emit(nil, 0, unsafe.Pointer(&out[0]), uint32(len(out)))
}
