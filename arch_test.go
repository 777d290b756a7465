package mqrun_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/mqrun/mqrun"

// floors lists the packages from the ground up. A package imports only from
// floors below its own.
var floors = [][]string{
	{"subject", "host/meter", "watch"},
	{"config", "host", "mq"},
	{"mq/mqtest", "messagequeue"},
	{"messagequeue/messagequeuetest", "messagequeue/idempotency"},
	{"messagequeue/jetstream", "messagequeue/redis", "messagequeue/sqs", "messagequeue/pubsub", "messagequeue/kafka"},
	{"pipeline", "bridge"},
	{"web"},
	{"cmd/mqrun"},
}

// reserved names the packages that only some may import, and why.
var reserved = map[string]struct {
	to  []string
	why string
}{
	"host/meter": {[]string{"host"}, "metering is how the sandbox works inside; ask host"},
	"mq/mqtest":  {nil, "it is for tests"},
}

// brokerNeutral is why nothing else under messagequeue imports mq.
const brokerNeutral = "messagequeue is broker neutral; only messagequeue/jetstream and messagequeue/idempotency import mq"

// attic holds what stands on top of the floors: programs and measurements that
// import what they need and that nobody imports.
var attic = []string{"test", "bench"}

// TestArchitecture holds the tree to its floors and its packages to their
// documentation. It parses files rather than run `go list`, so that the test
// cache sees what it depends on.
func TestArchitecture(t *testing.T) {
	problems, err := inspect(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// TestArchitecture_reports proves that the rules find what they forbid.
func TestArchitecture_reports(t *testing.T) {
	const documented = "// Package x is.\n//\n// # Caveats\n//\n// None.\n"
	imports := func(paths ...string) string {
		src := documented + "package x\n"
		for _, p := range paths {
			src += fmt.Sprintf("import _ %q\n", modulePath+"/"+p)
		}
		return src
	}
	tests := []struct{ name, file, src, want string }{
		{"downwards", "pipeline/a.go", imports("host", "mq", "config", "subject"), ""},
		{"same floor", "host/a.go", imports("mq"), "host/a.go:7: host imports mq: both are on floor 1 (config, host, mq), and packages on one floor do not know one another"},
		{"upwards", "mq/a.go", imports("pipeline"), "mq/a.go:7: mq (floor 1) imports pipeline (floor 5): a package imports only from floors below its own"},
		{"ground", "host/meter/a.go", imports("subject"), "host/meter/a.go:7: host/meter imports subject: both are on floor 0 (subject, host/meter, watch), and packages on one floor do not know one another"},
		{"host meters", "host/a.go", imports("host/meter"), ""},
		{"reserved", "mq/a.go", imports("host/meter"), "mq/a.go:7: mq imports host/meter: metering is how the sandbox works inside; ask host"},
		{"test kit", "web/a.go", imports("mq/mqtest"), "web/a.go:7: web imports mq/mqtest: it is for tests"},
		{"tests import freely", "host/a_test.go", imports("web"), ""},
		{"messagequeue", "messagequeue/a.go", imports("mq"), "messagequeue/a.go:7: messagequeue imports mq: " + brokerNeutral},
		{"backend", "messagequeue/redis/a.go", imports("mq"), "messagequeue/redis/a.go:7: messagequeue/redis imports mq: " + brokerNeutral},
		{"jetstream", "messagequeue/jetstream/a.go", imports("mq", "messagequeue"), ""},
		{"no floor", "util/a.go", imports(), "util/a.go:6: package util has no floor: give it one in arch_test.go"},
		{"unknown import", "web/a.go", imports("util"), "web/a.go:7: web imports util, which has no floor"},
		{"root", "web/a.go", documented + "package x\nimport _ \"" + modulePath + "\"\n", "web/a.go:7: web imports ., which has no floor"},
		{"attic imports all", "test/demo/a.go", imports("cmd/mqrun", "web"), ""},
		{"attic is imported", "web/a.go", imports("test/demo"), "web/a.go:7: web imports test/demo, which has no floor"},
		{"no doc", "mq/a.go", "package x\n", "mq: package x has no doc comment"},
		{"no caveats", "mq/a.go", "// Package x is.\npackage x\n", "mq: the doc comment of package x has no \"# Caveats\" heading"},
		{"no doc in another module", "plugins/a/a.go", "package main\n", "plugins/a: package main has no doc comment"},
		{"no floors in another module", "plugins/a/a.go", imports("host"), ""},
		{"testdata is free", "host/testdata/a/a.go", "package main\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "plugins/go.mod"), "module plugins\n")
			write(t, filepath.Join(root, filepath.FromSlash(tt.file)), tt.src)
			got, err := inspect(root)
			if err != nil {
				t.Fatal(err)
			}
			if want := slices.DeleteFunc([]string{tt.want}, func(s string) bool { return s == "" }); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree is one inspection.
type tree struct {
	root     string
	modules  []string            // folders of modules other than the root's
	docs     map[string][]string // package folder: its doc comments
	names    map[string]string   // package folder: its package name
	problems []string
}

// inspect returns what breaks the rules in the Go files under root.
func inspect(root string) ([]string, error) {
	tr := &tree{root: root, docs: map[string][]string{}, names: map[string]string{}}
	if err := filepath.WalkDir(root, tr.visit); err != nil {
		return nil, err
	}
	for pkg, name := range tr.names {
		switch doc := strings.Join(tr.docs[pkg], "\n"); {
		case doc == "":
			tr.report("%s: package %s has no doc comment", pkg, name)
		case !strings.Contains(doc, "# Caveats\n"):
			tr.report("%s: the doc comment of package %s has no \"# Caveats\" heading", pkg, name)
		}
	}
	slices.Sort(tr.problems)
	return tr.problems, nil
}

func (tr *tree) report(format string, args ...any) {
	tr.problems = append(tr.problems, fmt.Sprintf(format, args...))
}

func (tr *tree) visit(file string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(tr.root, file)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	if d.IsDir() {
		if name := d.Name(); name == "testdata" || rel != "." && strings.HasPrefix(name, ".") {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil && rel != "." {
			tr.modules = append(tr.modules, rel)
		}
		return nil
	}
	if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
		return nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	pkg := path.Dir(rel)
	tr.names[pkg] = f.Name.Name
	if f.Doc != nil {
		tr.docs[pkg] = append(tr.docs[pkg], f.Doc.Text())
	}
	tr.imports(rel, fset, f)
	return nil
}

// imports checks one file of the root module.
func (tr *tree) imports(file string, fset *token.FileSet, f *ast.File) {
	pkg := path.Dir(file)
	if slices.ContainsFunc(tr.modules, func(m string) bool { return inside(m, pkg) }) ||
		slices.ContainsFunc(attic, func(a string) bool { return inside(a, pkg) }) {
		return
	}
	at, ok := floorOf(pkg)
	if !ok {
		tr.report("%s:%d: package %s has no floor: give it one in arch_test.go", file, fset.Position(f.Name.Pos()).Line, pkg)
		return
	}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !inside(modulePath, name) {
			continue
		}
		imported := strings.TrimPrefix(strings.TrimPrefix(name, modulePath), "/")
		if imported == "" {
			imported = "."
		}
		if reason := forbidden(pkg, at, imported); reason != "" {
			tr.report("%s:%d: %s", file, fset.Position(spec.Pos()).Line, reason)
		}
	}
}

// forbidden says why pkg on floor at may not import the other, or "".
func forbidden(pkg string, at int, imported string) string {
	below, ok := floorOf(imported)
	if !ok {
		return fmt.Sprintf("%s imports %s, which has no floor", pkg, imported)
	}
	if r, ok := reserved[imported]; ok && !slices.Contains(r.to, pkg) {
		return fmt.Sprintf("%s imports %s: %s", pkg, imported, r.why)
	}
	if inside("messagequeue", pkg) && imported == "mq" && pkg != "messagequeue/jetstream" && pkg != "messagequeue/idempotency" {
		return fmt.Sprintf("%s imports mq: %s", pkg, brokerNeutral)
	}
	switch {
	case below == at:
		return fmt.Sprintf("%s imports %s: both are on floor %d (%s), and packages on one floor do not know one another", pkg, imported, at, strings.Join(floors[at], ", "))
	case below > at:
		return fmt.Sprintf("%s (floor %d) imports %s (floor %d): a package imports only from floors below its own", pkg, at, imported, below)
	}
	return ""
}

func floorOf(pkg string) (int, bool) {
	for i, floor := range floors {
		if slices.Contains(floor, pkg) {
			return i, true
		}
	}
	return 0, false
}

// inside reports whether name is dir or lies under it.
func inside(dir, name string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}
