package config_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mqrun/mqrun/config"
)

var update = flag.Bool("update", false, "write what the archives of testdata expect")

// enter unpacks the files into a fresh folder and makes it the current one.
func enter(t *testing.T, files ...file) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.name, []byte(f.data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// golden loads the archives of testdata whose names begin with the prefix, and
// compares all problem lines with their file "want". The archive's head may
// hold "env NAME=value", "set path=value" and "file path" (default
// pipelines.yaml) lines.
func golden(t *testing.T, prefix string) {
	t.Helper()
	names, err := filepath.Glob("testdata/" + prefix + "*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no archive testdata/%s*.txtar (%v)", prefix, err)
	}
	for _, name := range names {
		name, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			head, files := unpack(string(text))
			last := len(files) - 1
			if files[last].name != "want" {
				t.Fatal("the last file must be want")
			}
			enter(t, files[:last]...)
			got := ""
			if _, err = config.Load(options(head)); err != nil {
				got = err.Error() + "\n"
				var ps config.Problems
				if !errors.As(err, &ps) {
					t.Fatalf("Load: %v; want problems", err)
				}
			}
			if *update {
				before, _, _ := strings.Cut(string(text), "-- want --\n")
				if err := os.WriteFile(name, []byte(before+"-- want --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				files[last].data = got
			}
			if diff := cmp.Diff(files[last].data, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

type file struct{ name, data string }

// unpack reads a txtar archive: a head, then files under `-- name --` lines.
func unpack(text string) (head string, files []file) {
	for line := range strings.Lines(text) {
		name, marked := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "-- ")
		name, closed := strings.CutSuffix(name, " --")
		switch {
		case marked && closed:
			files = append(files, file{name: name})
		case len(files) == 0:
			head += line
		default:
			files[len(files)-1].data += line
		}
	}
	return head, files
}

func options(head string) config.LoadOptions {
	var o config.LoadOptions
	for line := range strings.Lines(head) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.ReplaceAll(rest, `\n`, "\n")
		switch word {
		case "env":
			o.Env = append(o.Env, rest)
		case "set":
			o.Set = append(o.Set, rest)
		case "file":
			o.Files = append(o.Files, rest)
		}
	}
	if o.Files == nil {
		o.Files = []string{"pipelines.yaml"}
	}
	return o
}

// load loads one pipelines.yaml beside a.wasm and b.wasm.
func load(t *testing.T, yaml string, o config.LoadOptions) (*config.Config, error) {
	t.Helper()
	enter(t, file{"pipelines.yaml", yaml}, file{"a.wasm", "a"}, file{"b.wasm", "b"})
	if o.Files == nil {
		o.Files = []string{"pipelines.yaml"}
	}
	return config.Load(o)
}

// small is a whole configuration; tests put more lines below it.
const small = `plugins:
  a: { module: a.wasm }
pipelines:
  p:
    from: in.x
    steps: [a]
    to: out.x
`
