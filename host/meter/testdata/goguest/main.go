package main

import (
	"encoding/json"
	"unsafe"
)

//go:wasmimport env input
func input(p unsafe.Pointer, n int32) int32

//go:wasmimport env emit
func emit(p unsafe.Pointer, n int32) int32

var buf = make([]byte, 1<<20)

//go:wasmexport echo
func echo(n int32) int32 {
	l := input(unsafe.Pointer(&buf[0]), int32(len(buf)))
	return emit(unsafe.Pointer(&buf[0]), l)
}

//go:wasmexport sum
func sum(n int32) int32 {
	l := input(unsafe.Pointer(&buf[0]), int32(len(buf)))
	var s uint32
	for _, b := range buf[:l] {
		s += uint32(b)
	}
	return int32(s)
}

//go:wasmexport fnv
func fnv(n int32) int32 {
	l := input(unsafe.Pointer(&buf[0]), int32(len(buf)))
	h := uint32(2166136261)
	for _, b := range buf[:l] {
		h = (h ^ uint32(b)) * 16777619
	}
	return int32(h)
}

//go:wasmexport json
func jsonJob(n int32) int32 {
	l := input(unsafe.Pointer(&buf[0]), int32(len(buf)))
	var v map[string]any
	if err := json.Unmarshal(buf[:l], &v); err != nil {
		return -1
	}
	out, err := json.Marshal(v)
	if err != nil {
		return -2
	}
	return emit(unsafe.Pointer(&out[0]), int32(len(out)))
}

func main() {}
