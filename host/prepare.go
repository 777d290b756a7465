package host

import (
	"encoding/binary"
	"fmt"
)

// prepare turns the bytes of a plugin's file into the bytes that are compiled.
// This is the one place where modules are rewritten: metering goes in here, and
// with it wazero's own switch (see engine.go) goes off unless l.Meter is false.
func prepare(wasm []byte, l Limits) ([]byte, error) {
	return capTables(wasm, uint32(min(l.Table, maxTable)))
}

// capTables lowers every declared table maximum to limit. wazero bounds
// memories, not tables: table.grow in a loop would take gigabytes.
func capTables(wasm []byte, limit uint32) ([]byte, error) {
	r := &reader{b: wasm, pos: 8}
	for r.pos < len(r.b) && r.err == nil {
		start := r.pos
		id := r.byte()
		body := r.section()
		if id != 4 || r.err != nil {
			continue
		}
		n := body.count()
		out := binary.AppendUvarint(nil, uint64(n))
		for ; n > 0; n-- {
			from := body.pos
			lo, hi, ok := body.table()
			switch {
			case body.err != nil:
				return nil, body.err
			case !ok:
				return nil, fmt.Errorf("declares a table (type 0x%x) that mqrun does not run", body.b[from])
			case hi < lo || hi > limit:
				hi = limit
			}
			out = append(out, body.b[from], 1)
			out = binary.AppendUvarint(out, uint64(lo))
			out = binary.AppendUvarint(out, uint64(hi))
		}
		head := append(append([]byte(nil), wasm[:start]...), id)
		head = binary.AppendUvarint(head, uint64(len(out)))
		return append(append(head, out...), wasm[r.pos:]...), nil
	}
	return wasm, r.err
}
