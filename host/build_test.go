package host

import (
	"bytes"
	"encoding/binary"
)

// wasmModule puts together modules that would be too large, or too many, as files.
type wasmModule struct {
	types   [][]byte
	imports [][]byte // entries
	funcs   []uint32 // types
	memory  uint32   // pages
	bodies  [][]byte // locals and code, with the end
	handle  uint32   // index of mq_handle
	extra   map[byte][]byte
}

// The types that every module has, by index.
const (
	typeHandle = iota // (i32) -> i32
	typeVoid          // () -> ()
)

func leb(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func lebName(b []byte, s string) []byte { return append(leb(b, uint64(len(s))), s...) }

func vector(items [][]byte) []byte {
	b := leb(nil, uint64(len(items)))
	for _, i := range items {
		b = append(b, i...)
	}
	return b
}

// newModule has one function, mq_handle, of this body; more come before it with add.
func newModule(pages uint32) *wasmModule {
	return &wasmModule{types: [][]byte{{0x60, 1, 0x7f, 1, 0x7f}, {0x60, 0, 0}}, memory: pages, extra: map[byte][]byte{}}
}

func (m *wasmModule) add(typ uint32, locals uint32, code ...byte) uint32 {
	body := []byte{0}
	if locals > 0 {
		body = append(leb([]byte{1}, uint64(locals)), 0x7f)
	}
	body = append(append(body, code...), 0x0b)
	m.funcs = append(m.funcs, typ)
	m.bodies = append(m.bodies, append(leb(nil, uint64(len(body))), body...))
	return uint32(len(m.imports) + len(m.funcs) - 1)
}

func (m *wasmModule) bytes() []byte {
	funcs := leb(nil, uint64(len(m.funcs)))
	for _, t := range m.funcs {
		funcs = leb(funcs, uint64(t))
	}
	exports := append(lebName([]byte{2}, "memory"), 2, 0)
	exports = leb(append(lebName(exports, "mq_handle"), 0), uint64(m.handle))
	sections := map[byte][]byte{1: vector(m.types), 2: vector(m.imports), 3: funcs, 5: leb([]byte{1, 0}, uint64(m.memory)), 7: exports, 10: vector(m.bodies)}
	for id, b := range m.extra {
		sections[id] = b
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, id := range []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11} {
		if b := sections[id]; b != nil {
			out = append(leb(append(out, id), uint64(len(b))), b...)
		}
	}
	return out
}

// Operations that the generated guests use.
const (
	opcLoop  = 0x03
	opcBlock = 0x02
	opcEnd   = 0x0b
	opcBr    = 0x0c
	opcTable = 0x0e // br_table
	opcCall  = 0x10
	opcGet   = 0x20
	opcSet   = 0x21
	opcConst = 0x41
	opcAdd   = 0x6a
	empty    = 0x40
)

// straightLine is a loop around n additions.
func straightLine(n int) []byte {
	m := newModule(1)
	code := []byte{opcLoop, empty}
	for range n {
		code = append(code, opcGet, 0, opcConst, 1, opcAdd, opcSet, 0)
	}
	code = append(code, opcBr, 0, opcEnd, opcConst, 0)
	m.handle = m.add(typeHandle, 0, code...)
	return m.bytes()
}

// manyFunctions has n functions that do nothing.
func manyFunctions(n int) []byte {
	m := newModule(1)
	for range n {
		m.add(typeVoid, 0)
	}
	m.handle = m.add(typeHandle, 0, opcConst, 0)
	return m.bytes()
}

// manyTargets is a br_table with n targets, in a loop.
func manyTargets(n int) []byte {
	m := newModule(1)
	code := []byte{opcLoop, empty, opcBlock, empty, opcGet, 0, opcTable}
	code = leb(code, uint64(n))
	for i := range n {
		code = append(code, byte(i%2))
	}
	code = append(code, 0, opcEnd, opcBr, 0, opcEnd, opcConst, 0)
	m.handle = m.add(typeHandle, 0, code...)
	return m.bytes()
}

// manyLoops has n loops one after another over as many locals: what is alive in
// each makes work for the compiler.
func manyLoops(n, locals int) []byte {
	m := newModule(1)
	var code []byte
	for i := range n {
		l := leb(nil, uint64(1+i%locals))
		code = append(code, opcLoop, empty)
		code = append(append(code, opcGet), l...)
		code = append(code, opcConst, 1, opcAdd)
		code = append(append(code, opcSet), l...)
		code = append(append(code, opcGet), l...)
		code = append(code, 0x0d, 0, opcEnd) // br_if
	}
	m.handle = m.add(typeHandle, uint32(locals), append(code, opcConst, 0)...)
	return m.bytes()
}

// deepBlocks has n blocks in one another.
func deepBlocks(n int) []byte {
	m := newModule(1)
	code := bytes.Repeat([]byte{opcBlock, empty}, n)
	code = append(code, bytes.Repeat([]byte{opcEnd}, n)...)
	m.handle = m.add(typeHandle, 0, append(code, opcConst, 0)...)
	return m.bytes()
}

// hugeData has one data segment of n bytes at address 0.
func hugeData(n int, pages uint32) []byte {
	m := newModule(pages)
	m.extra[11] = append(leb([]byte{1, 0, opcConst, 0, opcEnd}, uint64(n)), make([]byte, n)...)
	m.handle = m.add(typeHandle, 0, opcConst, 0)
	return m.bytes()
}

// wrongImport imports a function that the host has under a type that it has not.
func wrongImport(module, name string) []byte {
	m := newModule(1)
	m.types = append(m.types, []byte{0x60, 9, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0})
	m.imports = append(m.imports, append(lebName(lebName(nil, module), name), 0, 2))
	m.handle = m.add(typeHandle, 0, opcConst, 0)
	return m.bytes()
}
