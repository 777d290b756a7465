// Package spec runs the WebAssembly specification's tests, as wazero's module
// carries them, on metered modules.
//
// Every command of every script runs twice: on the modules as they are, and on
// what meter.Rewrite makes of them, in a runtime that offers tick. Both have to
// come to the same end: the same bits, the same trap, or no module at all. They are
// as many as wazero's own tests of the same scripts make.
//
// # Caveats
//
// The scripts are found in the module cache, so `go mod download` comes first.
package spec

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// suites by folder, with the features that wazero itself turns on for them.
var suites = map[string]api.CoreFeatures{
	"v1":                        api.CoreFeaturesV1,
	"v2":                        api.CoreFeaturesV2,
	"extended-const":            api.CoreFeaturesV2 | experimental.CoreFeaturesExtendedConst,
	"tail-call":                 api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall,
	"threads":                   api.CoreFeaturesV2 | experimental.CoreFeaturesThreads,
	"typed-function-references": api.CoreFeaturesV2 | experimental.CoreFeaturesTypedFunctionReferences | experimental.CoreFeaturesTailCall,
	"exception-handling": api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling |
		experimental.CoreFeaturesTailCall | experimental.CoreFeaturesTypedFunctionReferences,
}

// refusedFile lists the modules that are refused although wazero runs them, each
// with the reason.
const refusedFile = "testdata/refused.txt"

func TestSpec(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	root := wazeroDir(t)
	known := refusals(t)
	total := &tally{refused: map[string]string{}}
	for suite, features := range suites {
		dir := filepath.Join(root, "internal/integration_test/spectest", suite, "testdata")
		scripts, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(scripts) == 0 {
			t.Fatalf("no scripts in %s: %v", dir, err)
		}
		for _, path := range scripts {
			name := suite + "/" + strings.TrimSuffix(filepath.Base(path), ".json")
			t.Run(name, func(t *testing.T) { runScript(t, name, path, features, total) })
		}
	}
	for module, reason := range total.refused {
		if known[module] != reason {
			t.Errorf("%s is refused: %s; %s says %q", module, reason, refusedFile, known[module])
			total.failed += total.refusedBy[module]
		}
	}
	for module := range known {
		if _, ok := total.refused[module]; !ok {
			t.Errorf("%s is in %s and is not refused", module, refusedFile)
		}
	}
	own := assertions(t, root)
	if total.assertions != own {
		t.Errorf("%d assertions; wazero makes %d", total.assertions, own)
	}
	fmt.Printf("RESULT spec_assertions=%d spec_failed=%d spec_refused=%d spec_wazero=%d\n", total.assertions, total.failed, total.refusedAssertions, own)
}

func wazeroDir(t *testing.T) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatalf("find wazero's module: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func refusals(t *testing.T) map[string]string {
	raw, err := os.ReadFile(refusedFile)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range bytes.Lines(raw) {
		module, reason, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		if ok && module != "#" {
			known[module] = reason
		}
	}
	return known
}

// tally counts over all scripts.
type tally struct {
	assertions, failed, refusedAssertions int
	refused                               map[string]string // module: reason
	refusedBy                             map[string]int    // assertions lost to it
}

func runScript(t *testing.T, name, path string, features api.CoreFeatures, total *tally) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var script struct{ Commands []command }
	if err := json.Unmarshal(raw, &script); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	plain := newSide(ctx, t, filepath.Dir(path), features, false)
	metered := newSide(ctx, t, filepath.Dir(path), features, true)
	for i := range script.Commands {
		c := &script.Commands[i]
		as := ""
		if next := i + 1; c.Type == "module" && next < len(script.Commands) && script.Commands[next].Type == "register" {
			as = script.Commands[next].As
		}
		want, got := plain.run(ctx, c, as), metered.run(ctx, c, as)
		if c.Type == "module" {
			if want != "" {
				t.Errorf("line %d: wazero itself does not run %s: %s", c.Line, c.Filename, want)
			}
			switch reason := metered.refusal; {
			case reason != "":
				total.refused[name+"/"+c.Filename] = reason
			case got != want:
				t.Errorf("line %d: %s does not run when metered: %s", c.Line, c.Filename, got)
			}
			continue
		}
		if want == skipped {
			continue
		}
		total.assertions++
		switch {
		case metered.gone(c):
			total.refusedAssertions++
		case want != got:
			total.failed++
			t.Errorf("line %d: %s %s%v: %s, metered %s", c.Line, c.Type, c.Action.Field, c.Action.Args, want, got)
		}
	}
}
