package spec

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wazerosOwn in the environment has wazero's own tests run and counted.
const wazerosOwn = "MQRUN_SPEC_WAZERO"

// assertions is how many of the scripts' commands wazero's runner asserts
// something of, by what the scripts say, or by what its own tests say that ran.
func assertions(t *testing.T, root string) int {
	inScripts, textual := commands(t, root)
	if os.Getenv(wazerosOwn) == "" {
		return inScripts - textual
	}
	return passes(t) - textual
}

// commands counts those that are no modules, and among them the ones with a
// module in text form, of which wazero looks at none.
func commands(t *testing.T, root string) (all, textual int) {
	scripts, err := filepath.Glob(filepath.Join(root, "internal/integration_test/spectest/*/testdata/*.json"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts under %s: %v", root, err)
	}
	for _, path := range scripts {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var script struct{ Commands []map[string]any }
		if err := json.Unmarshal(raw, &script); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range script.Commands {
			switch kind := c["type"].(string); {
			case kind == "module" || kind == "register":
			case c["module_type"] == "text":
				textual++
				fallthrough
			default:
				all++
			}
		}
	}
	return all, textual
}

// passes runs wazero's own tests on the compiler, and counts the commands that
// passed. A command is a subtest, named after its kind and line.
func passes(t *testing.T) (n int) {
	args := []string{"test", "-count=1", "-v", "-run=^TestCompiler$"}
	for suite := range suites {
		args = append(args, "github.com/tetratelabs/wazero/internal/integration_test/spectest/"+suite)
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("wazero's own tests: %v\n%s", err, out)
	}
	command := regexp.MustCompile(`^\s+--- PASS: TestCompiler/[^/]+/(assert_[a-z]+|action)/line:`)
	for line := range strings.Lines(string(out)) {
		if command.MatchString(line) {
			n++
		}
	}
	return n
}
