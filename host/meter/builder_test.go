package meter_test

import "encoding/binary"

const (
	i32 = 0x7f
	i64 = 0x7e
	end = 0x0b
)

// builder makes modules of functions, each exported under its name.
type builder struct {
	types, funcs, exports, bodies [][]byte
	extra                         map[byte][]byte // other sections by id
}

func newBuilder() *builder { return &builder{extra: map[byte][]byte{}} }

func vector(entries [][]byte) []byte {
	b := binary.AppendUvarint(nil, uint64(len(entries)))
	for _, e := range entries {
		b = append(b, e...)
	}
	return b
}

func sized(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }

// function adds one; code ends with end. locals are one group a type.
func (b *builder) function(name string, params, results, locals, code []byte) *builder {
	b.types = append(b.types, append(append([]byte{0x60}, sized(params)...), sized(results)...))
	i := binary.AppendUvarint(nil, uint64(len(b.funcs)))
	b.funcs = append(b.funcs, binary.AppendUvarint(nil, uint64(len(b.types)-1)))
	if name != "" {
		b.exports = append(b.exports, append(append(sized([]byte(name)), 0), i...))
	}
	body := binary.AppendUvarint(nil, uint64(len(locals)))
	for _, l := range locals {
		body = append(body, 1, l)
	}
	b.bodies = append(b.bodies, sized(append(body, code...)))
	return b
}

func (b *builder) section(id byte, body []byte) *builder {
	b.extra[id] = body
	return b
}

func (b *builder) bytes() []byte {
	for id, list := range map[byte][][]byte{1: b.types, 3: b.funcs, 7: b.exports, 10: b.bodies} {
		if _, ok := b.extra[id]; !ok && len(list) > 0 {
			b.extra[id] = vector(list)
		}
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, id := range []byte{1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11} {
		if body, ok := b.extra[id]; ok {
			out = append(append(out, id), sized(body)...)
		}
	}
	if body, ok := b.extra[0]; ok {
		out = append(append(out, 0), sized(body)...)
	}
	return out
}
