package meter_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/host/meter"
)

// offsets in a trace are those of the code, which has grown.
var offsets = regexp.MustCompile(`0x[0-9a-f]+: *`)

func trace(err error) string {
	if err == nil {
		return "no error"
	}
	return offsets.ReplaceAllString(err.Error(), "")
}

// A trap shows the functions and source lines that it shows without metering.
func TestTracesKeepNamesAndLines(t *testing.T) {
	wasm := fixture(t, "trap.wasm")
	out, info := rewrite(t, wasm, meter.Options{Merge: true})
	if !info.Lines || info.LinesLost != "" {
		t.Errorf("lines: %v, lost: %q", info.Lines, info.LinesLost)
	}
	r := newRuntime(t, &ticker{refill: meter.MinRefill})
	plain, mod := instantiate(t, r, wasm), instantiate(t, r, out)
	for _, c := range []struct {
		export string
		arg    uint64
		shows  []string
	}{
		{"run", 5, []string{".middle(", ".run(", "trap.c:7:", "(inlined)", "trap.c:14:", "trap.c:21:"}},
		{"reach", 1 << 30, []string{".reach(", "trap.c:25:"}},
	} {
		_, err := plain.ExportedFunction(c.export).Call(t.Context(), c.arg)
		_, err2 := mod.ExportedFunction(c.export).Call(t.Context(), c.arg)
		if trace(err) != trace(err2) {
			t.Errorf("%s: %s\nmetered: %s", c.export, trace(err), trace(err2))
		}
		for _, s := range c.shows {
			if !strings.Contains(trace(err2), s) {
				t.Errorf("%s: the trace lacks %q:\n%v", c.export, s, err2)
			}
		}
	}
}

// The guests that wazero's own tests of lines use.
func TestLinesOfOtherCompilers(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	guests, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "internal/testing/dwarftestdata/testdata/*/main.wasm"))
	if err != nil || len(guests) < 3 {
		t.Fatal(guests, err)
	}
	r := newRuntime(t, &ticker{refill: meter.MinRefill})
	for _, path := range guests {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			wasm := read(t, path)
			out, info := rewrite(t, wasm, meter.Options{Merge: true})
			if !info.Lines {
				t.Errorf("lost: %q", info.LinesLost)
			}
			var traces [2]string
			for i, b := range [][]byte{wasm, out} {
				_, err := instantiate(t, r, b).ExportedFunction("_start").Call(t.Context())
				// Where a call is followed by another, wazero may take the second
				// for the place to return to.
				traces[i] = regexp.MustCompile(`asyncify_wasm\.S:\d+`).ReplaceAllString(trace(err), "")
			}
			if traces[0] != traces[1] || !strings.Contains(traces[0], "main.") {
				t.Errorf("%s\nmetered: %s", traces[0], traces[1])
			}
		})
	}
}

func TestDebugInformationThatIsLeftOut(t *testing.T) {
	wasm := fixture(t, "trap.wasm")
	at := strings.Index(string(wasm), ".debug_info") + len(".debug_info")
	for name, c := range map[string]struct {
		at   int
		v    byte
		lost string
	}{
		"dwarf 5":   {at + 4, 5, "DWARF 5"},
		"of 64 bit": {at + 10, 8, "32 bits"},
		"length":    {at + 2, 0x7f, "damaged"},
		"abbrev":    {at + 7, 0x7f, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			b := append([]byte(nil), wasm...)
			b[c.at] = c.v
			out, info := rewrite(t, b, meter.Options{})
			if !strings.Contains(info.LinesLost, c.lost) || info.Lines {
				t.Errorf("lost: %q, want %q", info.LinesLost, c.lost)
			}
			_, err := instantiate(t, newRuntime(t, &ticker{refill: meter.MinRefill}), out).ExportedFunction("run").Call(t.Context(), 5)
			if !strings.Contains(trace(err), ".middle(") || strings.Contains(trace(err), "trap.c") {
				t.Errorf("the trace is %v", err)
			}
		})
	}
}
