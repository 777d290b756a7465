package host

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mqrun/mqrun/host/meter"
)

// prepare turns the bytes of a plugin's file into the bytes that are compiled:
// metered, or, for a trusted plugin, with its tables bounded. What cannot be
// metered does not load: falling back to wazero's switch would let an odd
// opcode choose the weak way. The error follows the name of a file. least is what
// a tick has to give.
func prepare(wasm []byte, s *Settings) (out []byte, least int32, err error) {
	table := uint32(min(s.Limits.Table, maxTable))
	if s.Trusted {
		out, err = capTables(wasm, table)
		return out, 0, err
	}
	out, info, err := meter.Rewrite(wasm, meter.Options{TableMax: table, MaxFunctions: maxFunctions, LazyTables: lazyTables, Merge: true})
	var me *meter.Error
	switch {
	case err == nil:
		return out, info.MinRefill, nil
	case errors.As(err, &me) && me.Malformed:
		return nil, 0, fmt.Errorf("is no valid module: it %w", me)
	}
	return nil, 0, fmt.Errorf("cannot be metered: it %w; if you trust it, plugins.%s.limits.meter: off runs it without the meter", err, s.Name)
}

// lazyTables is how many functions of a table are worth filling it late.
const lazyTables = 256

// maxFunctions of one module. The largest Go programs have some 50,000.
const maxFunctions = 100_000

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
