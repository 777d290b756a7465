package host

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// hostImport is a host function under the module that offers it.
type hostImport struct {
	module string
	Func
}

// everyImport is all that the host offers.
func everyImport() []hostImport {
	var all []hostImport
	for _, m := range []struct {
		name string
		fs   []Func
	}{{ABIv1, Imports()}, {wasiModule, signatures(wasiFuncs())}, {envModule, signatures(envFuncs())}} {
		for _, f := range m.fs {
			all = append(all, hostImport{m.name, f})
		}
	}
	return all
}

const (
	anyArgs  = 9 // as many as any host function has
	anyStep  = 8 + 8*anyArgs
	anySteps = 50                   // that a message may have
	anyText  = 8 + anyStep*anySteps // where the text behind the steps begins
	anyPages = 4
)

// anyGuest calls what its message says: a number of steps, each the index of a host
// function in everyImport and nine numbers. It returns the last result.
func anyGuest() []byte {
	m := newModule(anyPages)
	all := everyImport()
	kinds := map[string]byte{"i32": 0x7f, "i64": 0x7e, "f32": 0x7d, "f64": 0x7c}
	for _, f := range all {
		typ := leb([]byte{0x60}, uint64(len(f.Params)))
		for _, p := range f.Params {
			typ = append(typ, kinds[p.Type])
		}
		if f.Result == "" {
			typ = append(typ, 0)
		} else {
			typ = append(typ, 1, kinds[f.Result])
		}
		m.types = append(m.types, typ)
		m.imports = append(m.imports, leb(append(lebName(lebName(nil, f.module), f.Name), 0), uint64(len(m.types)-1)))
	}
	const left, at, last = 1, 2, 3 // locals; 0 is the parameter
	input := slices.IndexFunc(all, func(f hostImport) bool { return f.Name == "input" })
	code := []byte{opcConst, 0, opcConst, 0x80, 0x80, 0x10, opcCall, byte(input), 0x1a, // input(0, 262,144)
		opcConst, 0, 0x28, 2, 0, opcSet, left, opcConst, 8, opcSet, at,
		opcBlock, empty, opcLoop, empty,
		opcGet, left, 0x45, 0x0d, 1} // br_if out, none is left
	for i, f := range all {
		code = append(code, opcGet, at, 0x28, 2, 0, opcConst, byte(i)|0x80, 0, 0x46, 0x04, empty) // if it is this one
		for k, p := range f.Params {
			load := map[string]byte{"i32": 0x28, "i64": 0x29, "f32": 0x2a, "f64": 0x2b}[p.Type]
			code = leb(append(code, opcGet, at, load, 2), uint64(8+8*k))
		}
		code = leb(append(code, opcCall), uint64(i))
		switch f.Result {
		case "i32":
			code = append(code, opcSet, last)
		case "i64", "f32", "f64":
			code = append(code, 0x1a)
		}
		code = append(code, opcEnd)
	}
	code = append(code, opcGet, left, opcConst, 1, 0x6b, opcSet, left,
		opcGet, at, opcConst, 0xd0, 0, opcAdd, opcSet, at, // 80
		opcBr, 0, opcEnd, opcEnd, opcGet, last)
	m.handle = m.add(typeHandle, 3, code...)
	return m.bytes()
}

// anyCalls writes the messages of anyGuest.
type anyCalls struct{ steps, text []byte }

func (a *anyCalls) call(name string, args ...uint64) *anyCalls {
	i := slices.IndexFunc(everyImport(), func(f hostImport) bool { return f.Name == name })
	a.steps = binary.LittleEndian.AppendUint64(a.steps, uint64(uint32(i)))
	for k := range anyArgs {
		v := uint64(0)
		if k < len(args) {
			v = args[k]
		}
		a.steps = binary.LittleEndian.AppendUint64(a.steps, v)
	}
	return a
}

// str puts text behind the steps.
func (a *anyCalls) str(s string) (ptr, n uint64) {
	ptr = uint64(anyText + len(a.text))
	a.text = append(a.text, s...)
	return ptr, uint64(len(s))
}

func (a *anyCalls) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(a.steps)/anyStep))
	b = append(b, a.steps...)
	b = append(b, make([]byte, max(0, anyText-len(b)))...)
	return append(b, a.text...)
}

func (a *anyCalls) message() *Message { return message(string(a.bytes())) }

// anyPlugin loads the guest with all that a plugin can be given.
func anyPlugin(t testing.TB, r *Runtime, s Settings) *Plugin {
	t.Helper()
	s.Name, s.File = "any", "any.wasm"
	s.Buckets, s.KV = []string{"state"}, newShelf()
	p, err := r.Load(t.Context(), anyGuest(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reaches: the function names a path, a directory or a socket.
func reaches(name string) bool {
	return strings.HasPrefix(name, "path_") || strings.HasPrefix(name, "sock_") || strings.HasPrefix(name, "fd_prestat_") || name == "fd_readdir" || name == "fd_renumber"
}

// Nothing is mounted: no path opens, from no directory, by no function.
func TestSEC04_NoPathCanBeOpened(t *testing.T) {
	p := anyPlugin(t, open(t, Options{}), Settings{})
	tried := 0
	for _, path := range []string{"", ".", "/", "..", "../../etc/passwd", "/etc/passwd", "/proc/self/environ", "any.wasm", "a\x00b"} {
		for _, f := range everyImport() {
			for fd := uint64(0); fd < 8 && reaches(f.Name); fd++ {
				var a anyCalls
				ptr, n := a.str(path)
				var args []uint64
				for _, q := range f.Params {
					switch q.Name {
					case "fd", "old_fd", "new_fd", "to":
						args = append(args, fd)
					case "path", "old_path", "new_path":
						args = append(args, ptr)
					case "len", "new_len":
						args = append(args, n)
					case "base", "inheriting":
						args = append(args, 1<<63-1)
					default:
						args = append(args, anyText+4096) // where a result may go
					}
				}
				tried++
				if res := run(t, p, a.call(f.Name, args...).message()); res.Code != wasiBadf {
					t.Errorf("%s of %q from %d: errno %d", f.Name, path, fd, res.Code)
				}
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d calls", tried)
	}
	// And nothing but the three streams is open.
	for fd := uint64(3); fd < 40; fd++ {
		for _, name := range []string{"fd_fdstat_get", "fd_filestat_get", "fd_read", "fd_write", "fd_pread", "fd_pwrite", "fd_seek", "fd_close"} {
			if res := run(t, p, (&anyCalls{}).call(name, fd, anyText, 0, anyText, anyText).message()); res.Code != wasiBadf {
				t.Errorf("%s of %d: errno %d", name, fd, res.Code)
			}
		}
	}
}
