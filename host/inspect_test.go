package host

import (
	"bytes"
	"testing"
)

func TestInspectSaysWhatToDo(t *testing.T) {
	const offered = "it offers: input, meta, meta_i64, header, headers, config, emit, emit_header, reason, retry_after, log, kv_get, kv_revision, kv_put, kv_create, kv_update, kv_delete"
	for name, want := range map[string]string{
		"bad-signature":     "x.wasm exports mq_handle as (i64) -> i32; expected (i32) -> i32",
		"bad-nohandle":      `x.wasm exports no mq_handle and no _start; it exports: handle, alloc (did you mean to export "handle" as "mq_handle"?)`,
		"bad-import":        `x.wasm imports "teleport" from "mqrun_v1", which this mqrun does not offer; ` + offered,
		"bad-typo":          `x.wasm imports "emitt" from "mqrun_v1", which this mqrun does not offer (did you mean "emit"?); ` + offered,
		"bad-importsig":     `x.wasm imports "input" from "mqrun_v1" as (i64, i32) -> i32; expected (i32, i32) -> i32`,
		"bad-version":       `x.wasm imports from "mqrun_v2"; this mqrun offers mqrun_v1`,
		"bad-neighbour":     `x.wasm imports "secret" from "other"; plugins may import from mqrun_v1, wasi_snapshot_preview1 and env alone`,
		"bad-memory-import": `x.wasm imports the memory "memory" from "mqrun_v1"; plugins own their memory, tables and globals: define it in the module`,
		"bad-nomemory":      `x.wasm exports no memory; export it under the name "memory"`,
		"bad-reserved":      "x.wasm exports mq_batch, which this mqrun does not know; names that begin with mq_ are reserved: mq_init, mq_handle",
		"bad-command":       "x.wasm is a WASI command (it exports _start and no mq_handle), which is not in this version; export mq_handle (std Go: //go:wasmexport mq_handle and -buildmode=c-shared)",
		"bad-extism":        "x.wasm is an Extism plugin (it imports extism:host/env), which is not in this version; export mq_handle and import mqrun_v1 instead",
		"bad-redpanda":      "x.wasm is a Redpanda data transform (it imports redpanda_transform), which is not in this version; export mq_handle and import mqrun_v1 instead",
		"both":              "x.wasm exports _start and mq_handle; build it as a reactor (std Go: -buildmode=c-shared, Rust: crate-type cdylib, C: -mexec-model=reactor), or set start: _start to run _start once in every instance",
	} {
		if _, err := Inspect("x.wasm", guest(t, name)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, want)
		}
	}
}

func TestOBS03_ComponentModelOrOtherWrongBinary(t *testing.T) {
	echo := guest(t, "echo")
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"component":      {[]byte("\x00asm\x0d\x00\x01\x00"), "x.wasm is a WebAssembly component; mqrun runs core modules: build for wasm32-wasip1 (Go: GOOS=wasip1, Rust: --target wasm32-wasip1)"},
		"HTML":           {[]byte("\n<!DOCTYPE html><html>404"), "x.wasm is HTML, not a WebAssembly module: a download gave an error page; fetch it again"},
		"empty":          {nil, "x.wasm is empty; build or copy it again"},
		"four bytes":     {echo[:4], "x.wasm is truncated: it has 4 bytes; build or copy it again"},
		"truncated":      {echo[:len(echo)-9], "x.wasm is truncated: it ends in the middle of a section (151 bytes); build or copy it again"},
		"text":           {[]byte("  (module)"), "x.wasm is WebAssembly text; build the binary: wat2wasm FILE.wat -o FILE.wasm"},
		"LFS pointer":    {[]byte("version https://git-lfs.github.com/spec/v1\n"), "x.wasm is a Git LFS pointer, not the module: git lfs pull"},
		"gzip":           {[]byte("\x1f\x8b\x08"), "x.wasm is compressed; unpack it first"},
		"ELF":            {[]byte("\x7fELF\x02"), "x.wasm is a native program; build for wasm32-wasip1 (Go: GOOS=wasip1 GOARCH=wasm)"},
		"other":          {[]byte("hello"), `x.wasm is not a WebAssembly module: it begins with "hello"`},
		"future version": {[]byte("\x00asm\x02\x00\x00\x00"), "x.wasm is WebAssembly of version 02 00 00 00; mqrun runs version 1"},
		"only a header":  {echo[:8], "x.wasm exports no mq_handle and no _start; it exports: no functions"},
	} {
		if _, err := Inspect("x.wasm", tt.data); err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, tt.want)
		}
	}
}

func TestInspectFacts(t *testing.T) {
	f, err := Inspect("memory-max.wasm", guest(t, "memory-max"))
	if err != nil {
		t.Fatal(err)
	}
	if f.ABI != ABIv1 || f.MemoryMin != 256 || f.MemoryMax != 32768 || f.Size == 0 || len(f.SHA256) != 64 || len(f.Exports) != 2 {
		t.Errorf("%+v", f)
	}
	if f, err = Inspect("probe.wasm", guest(t, "probe")); err != nil || f.Imports[0] != (Import{ABIv1, "input", "func", "(i32, i32) -> i32"}) || f.TableMin != 1 {
		t.Errorf("%v %+v", err, f)
	}
}

func TestSettingsThatAreNotInThisVersion(t *testing.T) {
	r := open(t, Options{})
	for want, s := range map[string]Settings{
		`load plugin "p": p.wasm is set to abi "command", which is not in this version; this mqrun offers mqrun_v1`: {ABI: "command"},
		`load plugin "p": p.wasm is set to the unknown abi "wat"; this mqrun offers auto and mqrun_v1`:              {ABI: "wat"},
		`load plugin "p": plugins.p.export is not in this version; export mq_handle`:                                {Export: "handle"},
		`load plugin "p": plugins.p.isolation is "process"; it is pool or message`:                                  {Isolation: "process"},
		`load plugin "p": p.wasm exports no function "_start", which is set as start; it exports: mq_handle`:        {Start: "_start"},
	} {
		s.Name, s.File = "p", "p.wasm"
		if _, err := r.Load(t.Context(), guest(t, "echo"), s); err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
	}
}

func TestTablesAreCapped(t *testing.T) {
	wasm := guest(t, "probe")
	out, _, err := prepare(wasm, &Settings{Trusted: true, Limits: Limits{Table: 10}})
	if err != nil {
		t.Fatal(err)
	}
	// table 1: funcref, min 1, now with the maximum 10
	if !bytes.Contains(out, []byte{4, 5, 1, 0x70, 1, 1, 10}) {
		t.Errorf("no capped table in % x", out[:300])
	}
	none := guest(t, "echo")
	if out, _, err := prepare(none, &Settings{Trusted: true, Limits: DefaultLimits()}); err != nil || !bytes.Equal(out, none) {
		t.Errorf("a module without tables was changed: %v", err)
	}
}
