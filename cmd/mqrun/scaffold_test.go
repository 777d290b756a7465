package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/mqrun/mqrun/host"
)

var update = flag.Bool("update", false, "write template/sdk-go.txtar anew")

// TestSDKIsTheSource holds the SDK that plugins are begun with to pluginsdk/go.
func TestSDKIsTheSource(t *testing.T) {
	const source, packed = "../../pluginsdk/go", "template/sdk-go.txtar"
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var a txtar.Archive
	a.Comment = []byte("Made from pluginsdk/go: go test ./cmd/mqrun -run TestSDKIsTheSource -update\n")
	for _, f := range append(files, filepath.Join(source, "go.mod")) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		a.Files = append(a.Files, txtar.File{Name: filepath.Base(f), Data: data})
	}
	want := txtar.Format(&a)
	if *update {
		if err := os.WriteFile(packed, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is older than %s: go test ./cmd/mqrun -run TestSDKIsTheSource -update", packed, source)
	}
}

// TestHeaderIsTheABI holds the C header to host/abi.go.
func TestHeaderIsTheABI(t *testing.T) {
	header, err := os.ReadFile("template/c/mqrun.h.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for line := range strings.Lines(string(header)) {
		if rest, ok := strings.CutPrefix(line, `IMPORT("`); ok {
			have = append(have, rest[:strings.IndexByte(rest, '"')])
		}
	}
	var want []string
	for _, f := range host.Imports() {
		want = append(want, f.Name)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the header has %v; the host offers %v", have, want)
	}
}
