//go:build !wasip1

package mqrun

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// abi is what the host offers, in the notation of [signature].
var abi = map[string]string{
	"input": "(i32 i32) -> i32", "meta": "(i32 i32 i32) -> i32", "meta_i64": "(i32) -> i64",
	"header": "(i32 i32 i32 i32 i32) -> i32", "headers": "(i32 i32) -> i32", "config": "(i32 i32 i32 i32) -> i32",
	"emit": "(i32 i32 i32 i32) -> i32", "emit_header": "(i32 i32 i32 i32) -> i32",
	"reason": "(i32 i32) ->", "retry_after": "(i32) ->", "log": "(i32 i32 i32) ->",
}

// TestModule builds a real plugin and holds its borders to the plugin ABI.
func TestModule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", file, "./testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := readModule(t, data)
	for name, want := range map[string]string{"memory": "memory", "mq_handle": "(i32) -> i32", "mq_init": "() -> i32", "_initialize": "() ->"} {
		if got := m.exports[name]; got != want {
			t.Errorf("export %s: got %q; want %q", name, got, want)
		}
	}
	if _, ok := m.exports["_start"]; ok {
		t.Error("the module exports _start; a plugin is a reactor")
	}
	if got := m.imports["mqrun_v1"]; !maps.Equal(got, abi) {
		t.Errorf("imports from mqrun_v1:\ngot  %v\nwant %v", got, abi)
	}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(m.imports)), func(s string) bool {
		return s == "mqrun_v1" || s == "wasi_snapshot_preview1"
	})
	if len(others) > 0 {
		t.Errorf("imports from %v; want none but mqrun_v1 and WASI", others)
	}
}

// module is what a module needs and gives: kinds and signatures by name.
type module struct {
	imports map[string]map[string]string
	exports map[string]string
}

// reader walks a module's bytes; a malformed module ends the test.
type reader struct {
	t    *testing.T
	rest []byte
}

func readModule(t *testing.T, data []byte) module {
	t.Helper()
	if string(data[:8]) != "\x00asm\x01\x00\x00\x00" {
		t.Fatal("not a core WebAssembly module")
	}
	m := module{imports: map[string]map[string]string{}, exports: map[string]string{}}
	var types, functions []string
	for r := (reader{t, data[8:]}); len(r.rest) > 0; {
		id := r.byte()
		section := reader{t, r.bytes(r.number())}
		switch id {
		case 1:
			for range section.number() {
				types = append(types, section.signature())
			}
		case 2:
			for range section.number() {
				from, name := section.name(), section.name()
				if kind := section.byte(); kind != 0 {
					t.Fatalf("import %s.%s is of kind %d; want a function", from, name, kind)
				}
				if m.imports[from] == nil {
					m.imports[from] = map[string]string{}
				}
				m.imports[from][name] = types[section.number()]
				functions = append(functions, m.imports[from][name])
			}
		case 3:
			for range section.number() {
				functions = append(functions, types[section.number()])
			}
		case 7:
			for range section.number() {
				name, kind, index := section.name(), section.byte(), section.number()
				switch kind {
				case 0:
					m.exports[name] = functions[index]
				case 2:
					m.exports[name] = "memory"
				default:
					m.exports[name] = fmt.Sprintf("kind %d", kind)
				}
			}
		}
	}
	return m
}

func (r *reader) byte() byte { return r.bytes(1)[0] }

func (r *reader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.t.Fatalf("the module ends %d bytes early", n-len(r.rest))
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) number() int {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.t.Fatal("malformed number in the module")
	}
	r.rest = r.rest[n:]
	return int(v)
}

func (r *reader) name() string { return string(r.bytes(r.number())) }

func (r *reader) signature() string {
	if form := r.byte(); form != 0x60 {
		r.t.Fatalf("type of form %#x; want a function", form)
	}
	kinds := map[byte]string{0x7f: "i32", 0x7e: "i64", 0x7d: "f32", 0x7c: "f64"}
	var lists [2][]string
	for i := range lists {
		for range r.number() {
			lists[i] = append(lists[i], kinds[r.byte()])
		}
	}
	return strings.TrimSpace("(" + strings.Join(lists[0], " ") + ") -> " + strings.Join(lists[1], " "))
}
