package mqrun_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/config"
)

// TestClusterPageShowsWholeFiles loads every file that docs/cluster.md shows.
func TestClusterPageShowsWholeFiles(t *testing.T) {
	text, err := os.ReadFile("docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, part := range strings.Split(string(text), "\n```") {
		block, shown := strings.CutPrefix(part, "yaml\n")
		if i%2 == 0 || !shown {
			continue
		}
		n++
		dir := t.TempDir()
		path := filepath.Join(dir, "pipelines.yaml")
		for name, data := range map[string]string{path: block, filepath.Join(dir, "parse.wasm"): "", filepath.Join(dir, "book.wasm"): ""} {
			if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := config.Load(config.LoadOptions{Files: []string{path}, Env: []string{"NODE_TOKEN=0123456789abcdef"}})
		if err != nil {
			t.Errorf("file %d: %v", n, err)
			continue
		}
		if n == 1 && (c.Server.Cluster.Nodes() != 3 || c.Replicas() != 3) {
			t.Errorf("%d nodes, %d replicas", c.Server.Cluster.Nodes(), c.Replicas())
		}
	}
	if n != 2 {
		t.Errorf("%d files; want 2", n)
	}
}
