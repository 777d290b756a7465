package meter

import "bytes"

const (
	secCustom    = 0
	secType      = 1
	secImport    = 2
	secFunction  = 3
	secTable     = 4
	secMemory    = 5
	secGlobal    = 6
	secExport    = 7
	secStart     = 8
	secElement   = 9
	secCode      = 10
	secData      = 11
	secDataCount = 12
	secTag       = 13
)

// rank puts the sections' ids in the order that they must have.
var rank = [14]uint8{
	secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secTag: 6, secGlobal: 7, secExport: 8,
	secStart: 9, secElement: 10, secDataCount: 11, secCode: 12, secData: 13,
}

// byRank is the other way round.
var byRank = [14]byte{
	1: secType, secImport, secFunction, secTable, secMemory, secTag, secGlobal, secExport, secStart, secElement,
	secDataCount, secCode, secData,
}

// section is where one lies: its body, without id and size.
type section struct {
	id       byte
	pos, end int
	name     string // of a custom section; pos is after it
}

// split finds the sections and checks their order.
func split(wasm []byte) ([]section, error) {
	if len(wasm) < 8 || !bytes.Equal(wasm[:4], []byte("\x00asm")) {
		return nil, malformed(0, "is not a WebAssembly module")
	}
	if !bytes.Equal(wasm[4:8], []byte{1, 0, 0, 0}) {
		return nil, refused(4, "is not a core module of version 1; a component has to be linked to one first")
	}
	var all []section
	var last uint8
	r := reader{b: wasm, pos: 8, end: len(wasm)}
	for r.more() {
		at := r.pos
		s := section{id: r.u8()}
		body := r.sub(r.u32())
		s.pos, s.end = body.pos, body.end
		if s.id == secCustom {
			s.name = body.name()
			s.pos = body.pos
			if body.err != nil {
				return nil, body.err
			}
		} else {
			if int(s.id) >= len(rank) {
				return nil, malformed(at, "has a section of unknown kind %d", s.id)
			}
			if rank[s.id] <= last {
				return nil, malformed(at, "has its sections in the wrong order")
			}
			last = rank[s.id]
		}
		if r.err != nil {
			return nil, r.err
		}
		all = append(all, s)
	}
	return all, nil
}
