package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad looks for a file that panics, or that fails with something other
// than problems at places of the file.
func FuzzLoad(f *testing.F) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		f.Fatal("no archives", err)
	}
	for _, name := range archives {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data), "1", "x")
		for part := range strings.SplitSeq(string(data), "\n-- ") {
			_, body, _ := strings.Cut(part, "--\n")
			f.Add(body, "[a, b]", "pipelines.p.workers=1")
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, yaml, value, set string) {
		c, err := assemble([]source{{"f.yaml", []byte(yaml)}}, dir, LoadOptions{
			Env: []string{"X=" + value, "MQRUN_PIPELINES__P__FROM=" + value, "MQRUN_PLUGINS__A__CONFIG__X=" + value}, Set: []string{set},
		})
		if err == nil {
			for name := range c.Pipelines {
				c.Publishes(name)
				c.Pipelines[name].Hash()
			}
			return
		}
		var ps Problems
		if !errors.As(err, &ps) || len(ps) == 0 {
			t.Fatalf("%v is no list of problems", err)
		}
		for _, p := range ps {
			if p.Message == "" || p.File == "f.yaml" && (p.Line < 1 || p.Col < 1) {
				t.Errorf("problem %+v", p)
			}
			if s := p.String(); p.File == "f.yaml" && strings.ContainsAny(s, "\n\r\x00") {
				t.Errorf("problem of more than one line: %q", s)
			}
		}
	})
}
