package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mqrun/mqrun/config"
)

// TestReach: where the store is can be told of a file that is refused, of one
// that cannot be parsed, and of one that is gone.
func TestReach(t *testing.T) {
	for _, tt := range []struct{ name, yaml, want string }{
		{"good", "server: { store_dir: elsewhere }\n" + small, "elsewhere"},
		{"unknown key", "server: { store_dir: elsewhere, nope: 1 }\n" + small, "elsewhere"},
		{"no module", "server: { store_dir: elsewhere }\nplugins: { a: { module: gone.wasm } }", "elsewhere"},
		{"bad value", "server: { store_dir: elsewhere, max_bytes: lots }", "elsewhere"},
		{"no YAML", "server: { store_dir: [", ".mqrun"},
		{"empty", "", ".mqrun"},
		{"gone", "-", ".mqrun"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "pipelines.yaml")
			if tt.yaml != "-" {
				if err := os.WriteFile(file, []byte(tt.yaml), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, _, err := config.Reach(config.LoadOptions{Files: []string{file}})
			if want := filepath.Join(dir, tt.want); err != nil || s.StoreDir != want {
				t.Errorf("store %q, %v; want %q", s.StoreDir, err, want)
			}
		})
	}
	if _, _, err := config.Reach(config.LoadOptions{}); err == nil {
		t.Error("no file is no error")
	}
}

// TestNamed: the files that a configuration names are told also when it is
// refused because one of them is not there.
func TestNamed(t *testing.T) {
	var got []string
	_, err := load(t, "nats: { url: \"nats://a:4222\", creds: my.creds }\nplugins: { a: { module: a.wasm }, gone: { module: sub/gone.wasm } }", config.LoadOptions{
		Named: func(files []string) { got = files },
	})
	if err == nil {
		t.Error("a module that is not there is no problem")
	}
	for i, want := range []string{"a.wasm", "my.creds", "sub/gone.wasm"} {
		if i >= len(got) || !filepath.IsAbs(got[i]) || got[i] != filepath.Join(filepath.Dir(got[0]), want) {
			t.Fatalf("named %q", got)
		}
	}
}
