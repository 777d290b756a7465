package meter_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/host/meter"
)

func nameMap(names ...string) []byte {
	var list [][]byte
	for i, n := range names {
		list = append(list, append([]byte{byte(i)}, sized([]byte(n))...))
	}
	return vector(list)
}

// Functions keep their names, imported ones included, and what is added has some.
func TestFunctionNames(t *testing.T) {
	names := append(sized([]byte("name")), append([]byte{0}, sized(sized([]byte("mine")))...)...)
	names = append(append(names, 1), sized(nameMap("imported", "first", "second"))...)
	names = append(append(names, 2), sized([]byte{1, 2, 1, 0, 1, 'x'})...)
	names = append(append(names, 3), sized([]byte{0})...) // labels, which have moved
	wasm := newBuilder().section(1, []byte{1, 0x60, 0, 0}).
		section(2, append(append(append([]byte{1}, sized([]byte("env"))...), sized([]byte("f"))...), 0, 0)).
		section(3, []byte{2, 0, 0}).section(7, append(append([]byte{1}, sized([]byte("run"))...), 0, 1)).
		section(10, []byte{2, 4, 0, 0x10, 2, end, 4, 0, 0x10, 0, end}).section(0, names).bytes()
	out, _ := rewrite(t, wasm, meter.Options{})
	k := &ticker{refill: meter.MinRefill, stop: 1}
	r := newRuntime(t, k)
	_, err := r.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func() { panic("in the host") }).Export("f").Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mod := instantiate(t, r, out)
	_, err = mod.ExportedFunction("run").Call(t.Context())
	for _, s := range []string{"mqrun:refill()", "mine.first()"} {
		if !strings.Contains(fmt.Sprint(err), s) {
			t.Errorf("a trace from tick lacks %s: %v", s, err)
		}
	}
	k.stop = 0
	_, err = mod.ExportedFunction("run").Call(t.Context())
	for _, s := range []string{"env.f()", "mine.second()", "mine.first()"} {
		if !strings.Contains(fmt.Sprint(err), s) {
			t.Errorf("a trace from the host lacks %s: %v", s, err)
		}
	}
}

// A damaged name section is left out; the module runs.
func TestDamagedNames(t *testing.T) {
	for _, names := range [][]byte{{1, 0x7f}, {1, 3, 5, 0, 0}, {1, 3, 1, 9, 0}, {1, 4, 1, 0, 1, 0xff}} {
		b := newBuilder().function("run", nil, nil, nil, []byte{end}).section(0, append(sized([]byte("name")), names...))
		out, _ := rewrite(t, b.bytes(), meter.Options{})
		mod := instantiate(t, newRuntime(t, &ticker{}), out)
		if _, err := mod.ExportedFunction("run").Call(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Other custom sections stay, except what points into the code.
func TestCustomSections(t *testing.T) {
	for name, kept := range map[string]bool{"producers": true, "mqrun.note": true, "reloc.CODE": false, "metadata.code.branch_hint": false, ".debug_loc": false} {
		out, _ := rewrite(t, newBuilder().section(0, append(sized([]byte(name)), "content"...)).bytes(), meter.Options{})
		if got := strings.Contains(string(out), name+"content"); got != kept {
			t.Errorf("%s: kept %v", name, got)
		}
	}
}

// goGuest builds the Go guest of the benchmark.
func goGuest(t testing.TB) []byte {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and compiles a Go module")
	}
	wasm := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", wasm, "./testdata/goguest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the Go guest: %v\n%s", err, out)
	}
	return read(t, wasm)
}
