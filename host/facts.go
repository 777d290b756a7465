package host

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Facts are what a module's bytes say without running anything.
type Facts struct {
	Name    string // as given to Inspect; error texts begin with it
	Size    int64  // bytes
	SHA256  string // hex
	ABI     string
	Imports []Import
	Exports []Export
	// MemoryMin and MemoryMax are in pages of 64 KiB; MemoryMax is 65536 when the module declares none.
	MemoryMin uint32
	MemoryMax uint32
	TableMin  uint32 // elements; of the largest table
	HasStart  bool   // a start section
	// Producers are the tools that made it, as `name version`, where they say so.
	Producers []string

	memories int
}

// Import of a module. Kind is func, table, memory, global or tag; Signature is empty but for functions.
type Import struct{ Module, Name, Kind, Signature string }

// Export of a module, as Import.
type Export struct{ Name, Kind, Signature string }

func (f *Facts) export(kind, name string) (Export, bool) {
	for _, e := range f.Exports {
		if e.Kind == kind && e.Name == name {
			return e, true
		}
	}
	return Export{}, false
}

func (f *Facts) importsFrom(module string) bool {
	for _, i := range f.Imports {
		if i.Module == module {
			return true
		}
	}
	return false
}

// producers reads the custom section of that name (tool conventions of
// WebAssembly) and gives nothing for another or a damaged one.
func producers(s *reader) []string {
	if s.name() != "producers" {
		return nil
	}
	var all []string
	for n := s.count(); n > 0 && s.err == nil; n-- {
		s.name() // language, processed-by or sdk
		for n := s.count(); n > 0 && s.err == nil; n-- {
			all = append(all, strings.TrimSpace(s.name()+" "+s.name()))
		}
	}
	if s.err != nil {
		return nil
	}
	return all
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// read fills f from the sections of a core module.
func (f *Facts) read(wasm []byte) error {
	r := &reader{b: wasm, pos: 8}
	var types []string
	var funcs []uint32 // type of every function, imported ones first
	imported := 0
	sig := func(t uint32) string {
		if int(t) < len(types) {
			return types[t]
		}
		return ""
	}
	for r.pos < len(r.b) && r.err == nil {
		id := r.byte()
		s := r.section()
		if r.err != nil {
			break
		}
		switch id {
		case 0:
			f.Producers = append(f.Producers, producers(s)...)
			continue // a damaged custom section is no damaged module
		case 1:
			for n := s.count(); n > 0 && s.err == nil; n-- {
				types = append(types, s.funcType())
			}
		case 2:
			for n := s.count(); n > 0 && s.err == nil; n-- {
				i := Import{Module: s.name(), Name: s.name()}
				switch s.byte() {
				case 0:
					t := s.u32()
					i.Kind, i.Signature = "func", sig(t)
					funcs = append(funcs, t)
					imported++
				case 1:
					i.Kind = "table"
					s.byte()
					s.limits()
				case 2:
					i.Kind = "memory"
					s.limits()
				case 3:
					i.Kind = "global"
					s.byte()
					s.byte()
				default:
					i.Kind = "tag"
					s.byte()
					s.u32()
				}
				f.Imports = append(f.Imports, i)
			}
		case 3:
			for n := s.count(); n > 0 && s.err == nil; n-- {
				funcs = append(funcs, s.u32())
			}
		case 4:
			for n := s.count(); n > 0 && s.err == nil; n-- {
				lo, _, ok := s.table()
				if !ok {
					break // an initialised table: wazero reads on
				}
				f.TableMin = max(f.TableMin, lo)
			}
		case 5:
			for n := s.count(); n > 0 && s.err == nil; n-- {
				lo, hi, has := s.limits()
				f.memories++
				f.MemoryMin, f.MemoryMax = lo, maxPages
				if has {
					f.MemoryMax = hi
				}
			}
		case 7:
			for n := s.count(); n > 0 && s.err == nil; n-- {
				e := Export{Name: s.name()}
				kind, index := s.byte(), s.u32()
				switch kind {
				case 0:
					e.Kind = "func"
					if int(index) < len(funcs) {
						e.Signature = sig(funcs[index])
					}
				case 1:
					e.Kind = "table"
				case 2:
					e.Kind = "memory"
				case 3:
					e.Kind = "global"
				default:
					e.Kind = "tag"
				}
				f.Exports = append(f.Exports, e)
			}
		case 8:
			f.HasStart = true
		}
		if s.err != nil {
			return s.err
		}
	}
	return r.err
}
