package host

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Inspect reads a module without running it and says whether it is one that
// this host can load. Errors begin with name and say what to do; the facts come
// along as far as they could be read. Safe for concurrent use.
func Inspect(name string, wasm []byte) (*Facts, error) {
	s := Settings{Name: name, File: name}
	return s.inspect(wasm)
}

// Inspect is the function Inspect for a plugin's settings: it also checks abi,
// start and the limits, and is all that Load checks before it compiles.
func (s Settings) Inspect(wasm []byte) (*Facts, error) {
	s.Limits = s.Limits.orDefault()
	f, err := s.inspect(wasm)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(f); err != nil {
		return f, fmt.Errorf("%s %w", f.Name, err)
	}
	return f, s.fits(f)
}

// allowed refuses a module that imports what the settings do not allow.
func (s *Settings) allowed(f *Facts) error {
	for _, i := range f.Imports {
		if i.Module == ABIv1 && strings.HasPrefix(i.Name, kvPrefix) && len(s.Buckets) == 0 {
			return fmt.Errorf("imports %q from %q, which is not allowed; name its buckets: plugins.%s.allow.kv", i.Name, i.Module, s.Name)
		}
	}
	return nil
}

func (s *Settings) inspect(wasm []byte) (*Facts, error) {
	name := s.File
	if name == "" {
		name = s.Name
	}
	if err := recognise(wasm); err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	f := &Facts{Name: name, Size: int64(len(wasm)), SHA256: digest(wasm)}
	if err := f.read(wasm); errors.Is(err, errTruncated) {
		return nil, fmt.Errorf("%s is truncated: it %w (%d bytes); build or copy it again", name, err, len(wasm))
	} else if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	abi, err := s.abi(f)
	if err != nil {
		return f, fmt.Errorf("%s %w", name, err)
	}
	f.ABI = abi
	for _, check := range []func(*Facts) error{checkImports, s.checkExports} {
		if err := check(f); err != nil {
			return f, fmt.Errorf("%s %w", name, err)
		}
	}
	return f, nil
}

// recognise tells a core module from everything else that ends up under the
// name of one.
func recognise(b []byte) error {
	const magic, core = "\x00asm", "\x01\x00\x00\x00"
	head := bytes.ToLower(bytes.TrimLeft(b[:min(len(b), 512)], " \t\r\n\ufeff"))
	switch {
	case len(b) == 0:
		return errors.New("is empty; build or copy it again")
	case len(b) < 8 && strings.HasPrefix(magic+core, string(b)):
		return fmt.Errorf("is truncated: it has %d bytes; build or copy it again", len(b))
	case bytes.HasPrefix(b, []byte(magic+core)):
		return nil
	case bytes.HasPrefix(b, []byte(magic)) && len(b) >= 8 && b[6] == 1:
		return errors.New("is a WebAssembly component; mqrun runs core modules: build for wasm32-wasip1 (Go: GOOS=wasip1, Rust: --target wasm32-wasip1)")
	case bytes.HasPrefix(b, []byte(magic)):
		return fmt.Errorf("is WebAssembly of version % x; mqrun runs version 1", b[4:min(8, len(b))])
	case bytes.HasPrefix(head, []byte("<!doctype")), bytes.HasPrefix(head, []byte("<html")):
		return errors.New("is HTML, not a WebAssembly module: a download gave an error page; fetch it again")
	case bytes.HasPrefix(head, []byte("(module")), bytes.HasPrefix(head, []byte(";;")), bytes.HasPrefix(head, []byte("(;")), bytes.HasPrefix(head, []byte("(component")):
		return errors.New("is WebAssembly text; build the binary: wat2wasm FILE.wat -o FILE.wasm")
	case bytes.HasPrefix(b, []byte("version https://git-lfs")):
		return errors.New("is a Git LFS pointer, not the module: git lfs pull")
	case bytes.HasPrefix(b, []byte("\x1f\x8b")), bytes.HasPrefix(b, []byte("PK\x03\x04")):
		return errors.New("is compressed; unpack it first")
	case bytes.HasPrefix(b, []byte("\x7fELF")), bytes.HasPrefix(b, []byte("MZ")):
		return errors.New("is a native program; build for wasm32-wasip1 (Go: GOOS=wasip1 GOARCH=wasm)")
	}
	return fmt.Errorf("is not a WebAssembly module: it begins with %q", b[:min(len(b), 16)])
}

// abi decides which way in the module wants; an explicit setting wins.
func (s *Settings) abi(f *Facts) (string, error) {
	_, handle := f.export("func", ExportHandle)
	_, start := f.export("func", exportStart)
	switch s.ABI {
	case "", "auto":
	case ABIv1, "mqrun", "v1":
		return ABIv1, nil
	case "command", "extism", "redpanda":
		return "", fmt.Errorf("is set to abi %q, which is not in this version; this mqrun offers %s", s.ABI, ABIv1)
	default:
		return "", fmt.Errorf("is set to the unknown abi %q; this mqrun offers auto and %s", s.ABI, ABIv1)
	}
	switch {
	case handle, f.importsFrom(ABIv1):
		return ABIv1, nil
	case f.importsFrom("redpanda_transform"):
		return "", fmt.Errorf("is a Redpanda data transform (it imports redpanda_transform), which is not in this version; export %s and import %s instead", ExportHandle, ABIv1)
	case f.importsFrom("extism:host/env"):
		return "", fmt.Errorf("is an Extism plugin (it imports extism:host/env), which is not in this version; export %s and import %s instead", ExportHandle, ABIv1)
	case start:
		return "", fmt.Errorf("is a WASI command (it exports _start and no %s), which is not in this version; export %s (std Go: //go:wasmexport %[1]s and -buildmode=c-shared)", ExportHandle, ExportHandle)
	}
	return ABIv1, nil
}

func (s *Settings) checkExports(f *Facts) error {
	want := map[string]string{}
	for _, e := range Exports() {
		want[e.Name] = e.Signature()
	}
	if _, ok := f.export("func", ExportHandle); !ok {
		return s.noHandle(f)
	}
	for _, e := range f.Exports {
		sig, known := want[e.Name]
		switch {
		case known && e.Kind != "func":
			return fmt.Errorf("exports %s as a %s; expected a function %s", e.Name, e.Kind, sig)
		case known && e.Signature != sig:
			return fmt.Errorf("exports %s as %s; expected %s", e.Name, e.Signature, sig)
		case !known && strings.HasPrefix(e.Name, "mq_"):
			return fmt.Errorf("exports %s, which this mqrun does not know; names that begin with mq_ are reserved: %s, %s", shown(e.Name), ExportInit, ExportHandle)
		}
	}
	switch _, ok := f.export("memory", ExportMemory); {
	case f.memories > 1:
		return fmt.Errorf("has %d memories; mqrun runs modules with one", f.memories)
	case !ok || f.memories == 0:
		return fmt.Errorf("exports no memory; export it under the name %q", ExportMemory)
	}
	if s.Start != "" {
		if e, ok := f.export("func", s.Start); !ok {
			return fmt.Errorf("exports no function %q, which is set as start; it exports: %s", s.Start, f.exported())
		} else if e.Signature != "() -> ()" {
			return fmt.Errorf("exports %s as %s; a start function is () -> ()", s.Start, e.Signature)
		}
		return nil
	}
	if _, ok := f.export("func", exportStart); ok {
		return fmt.Errorf("exports _start and %s; build it as a reactor (std Go: -buildmode=c-shared, Rust: crate-type cdylib, C: -mexec-model=reactor), or set start: _start to run _start once in every instance", ExportHandle)
	}
	return nil
}

func (s *Settings) noHandle(f *Facts) error {
	hint := ""
	for _, e := range f.Exports {
		if e.Kind == "func" && near(strings.ToLower(e.Name), "handle", ExportHandle) {
			hint = fmt.Sprintf(" (did you mean to export %s as %q?)", quote([]byte(e.Name)), ExportHandle)
			break
		}
	}
	if _, ok := f.export("func", exportStart); ok {
		return fmt.Errorf("exports _start, but no %s; it exports: %s%s; std Go: //go:wasmexport %[1]s and -buildmode=c-shared", ExportHandle, f.exported(), hint)
	}
	return fmt.Errorf("exports no %s and no _start; it exports: %s%s", ExportHandle, f.exported(), hint)
}

// exported lists the exported functions, or says that there are none.
func (f *Facts) exported() string {
	var names []string
	for _, e := range f.Exports {
		if e.Kind == "func" {
			names = append(names, shown(e.Name))
		}
	}
	if len(names) > 20 {
		names = append(names[:20], fmt.Sprintf("and %d more", len(names)-20))
	}
	if len(names) == 0 {
		return "no functions"
	}
	return strings.Join(names, ", ")
}

// shown is a name as it is, unless it needs quotes: names are the module's to choose.
func shown(name string) string {
	for _, r := range name {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == utf8.RuneError {
			return quote([]byte(name))
		}
	}
	if name == "" || len(name) > 64 {
		return quote([]byte(name))
	}
	return name
}

// checkImports refuses what the host lacks before an engine says it in its own words.
// offered is what modules may import, by the name that they import it from.
func offered() map[string][]Func {
	return map[string][]Func{ABIv1: Imports(), wasiModule: signatures(wasiFuncs()), envModule: signatures(envFuncs())}
}

// Offers reports whether this host has what a module imports.
func Offers(i Import) bool {
	return i.Kind == "func" && slices.ContainsFunc(offered()[i.Module], func(o Func) bool { return o.Name == i.Name && o.Signature() == i.Signature })
}

func checkImports(f *Facts) error {
	offers := offered()
	for _, i := range f.Imports {
		offer, known := offers[i.Module]
		switch {
		case known:
		case strings.HasPrefix(i.Module, "mqrun_"):
			return fmt.Errorf("imports from %s; this mqrun offers %s", quote([]byte(i.Module)), ABIv1)
		default:
			return fmt.Errorf("imports %s from %s; plugins may import from %s, %s and %s alone", quote([]byte(i.Name)), quote([]byte(i.Module)), ABIv1, wasiModule, envModule)
		}
		if i.Kind != "func" {
			return fmt.Errorf("imports the %s %s from %q; plugins own their memory, tables and globals: define it in the module", i.Kind, quote([]byte(i.Name)), i.Module)
		}
		var names []string
		at := slices.IndexFunc(offer, func(o Func) bool { return o.Name == i.Name })
		for _, o := range offer {
			names = append(names, o.Name)
		}
		switch {
		case at < 0:
			hint := ""
			for _, n := range names {
				if near(i.Name, n) {
					hint = fmt.Sprintf(" (did you mean %q?)", n)
					break
				}
			}
			return fmt.Errorf("imports %s from %q, which this mqrun does not offer%s; it offers: %s", quote([]byte(i.Name)), i.Module, hint, strings.Join(names, ", "))
		case offer[at].Signature() != i.Signature:
			return fmt.Errorf("imports %q from %q as %s; expected %s", i.Name, i.Module, i.Signature, offer[at].Signature())
		}
	}
	return nil
}

// near reports whether s is one of the words but for a slip or two.
func near(s string, words ...string) bool {
	for _, w := range words {
		if distance(s, w) <= 2 {
			return true
		}
	}
	return false
}

// distance is the number of single letter edits between a and b.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(diag+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
