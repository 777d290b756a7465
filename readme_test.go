package mqrun_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// blocks are the fenced blocks of README.md whose fence names the language.
func blocks(t *testing.T, section, language string) []string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), section)
	if !ok {
		t.Fatalf("README.md has no %q", section)
	}
	if i := strings.Index(text, "\n## "); i >= 0 {
		text = text[:i]
	}
	var found []string
	for {
		var block string
		if _, text, ok = strings.Cut(text, "\n```"); !ok {
			return found
		}
		head, rest, _ := strings.Cut(text, "\n")
		if block, text, ok = strings.Cut(rest, "\n```"); !ok {
			t.Fatal("README.md: a fence is not closed")
		}
		if head == language {
			found = append(found, block+"\n")
		}
	}
}

func TestReadmeShowsTheQuickstartFile(t *testing.T) {
	want, err := os.ReadFile("plugins/quickstart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := blocks(t, "# mqrun\n", "yaml")
	if len(got) != 1 || got[0] != string(want) {
		t.Errorf("README.md shows\n%s\nplugins/quickstart.yaml is\n%s", got, want)
	}
	if n := bytes.Count(want, []byte("\n")); n != 12 {
		t.Errorf("%d lines; 12 were promised", n)
	}
}

// TestReadmeOwnPlugin runs the section "A plugin of your own" word for word.
func TestReadmeOwnPlugin(t *testing.T) {
	dir := t.TempDir()
	goBuild(t, ".", nil, filepath.Join(dir, "bin/mqrun"), "./cmd/mqrun")
	commands := blocks(t, "## A plugin of your own\n", "")
	if len(commands) != 1 {
		t.Fatalf("%d blocks of commands; want 1", len(commands))
	}
	var out []byte
	for line := range strings.Lines(commands[0]) {
		c := exec.CommandContext(t.Context(), "sh", "-c", strings.TrimSpace(line))
		c.Dir = dir
		var err error
		if out, err = c.CombinedOutput(); err != nil {
			t.Fatalf("%s%v\n%s", line, err, out)
		}
	}
	if !strings.Contains(string(out), "hello, Ada") {
		t.Errorf("the last command says\n%s", out)
	}
}

// TestReadmeCommands runs the section "By hand" word for word in a copy of the
// tree that holds only what it needs.
func TestReadmeCommands(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"plugins/quickstart.yaml", "plugins/examples/data/damaged.ndjson", "plugins/examples/data/earthquakes.ndjson"} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	goBuild(t, ".", nil, filepath.Join(dir, "bin/mqrun"), "./cmd/mqrun")
	goBuild(t, "plugins/examples", []string{"GOOS=wasip1", "GOARCH=wasm"}, filepath.Join(dir, "plugins/bin/parse.wasm"), "-buildmode=c-shared", "./go-parse")

	commands := blocks(t, "## By hand\n", "")
	if len(commands) != 2 {
		t.Fatalf("%d blocks of commands; want 2", len(commands))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sh := func(line string) *exec.Cmd {
		c := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
		c.Dir, c.Env = dir, append(os.Environ(), "MQRUN_WEB__LISTEN=127.0.0.1:0")
		return c
	}
	var run *exec.Cmd
	for line := range strings.Lines(commands[0]) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "make "): // built above
		case strings.Contains(line, " run "):
			run = sh(line)
		default:
			if out, err := sh(line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
		}
	}
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run.Stderr = os.Stderr
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := run.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := run.Wait(); err != nil {
			t.Errorf("run ended with %v", err)
		}
	}()
	first := make([]byte, 1) // it prints once everything runs
	if _, err := out.Read(first); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"damaged.ndjson": "stored 25 messages", "earthquakes.ndjson": "stored 1707 messages", " sub ": "quakes.parsed", "dlq ls": "rejected 25", "dlq show": "Mqrun-Reason"}
	for line := range strings.Lines(commands[1]) {
		var got string
		for range 100 { // dead letters come a moment after their message was stored
			b, err := sh(strings.TrimSpace(line)).CombinedOutput()
			if got = string(b); err == nil && strings.Contains(got, pick(want, line)) {
				break
			}
			if strings.Contains(line, " pub ") {
				break
			}
		}
		if !strings.Contains(got, pick(want, line)) {
			t.Errorf("%s printed\n%s\nwant %q", line, got, pick(want, line))
		}
	}
}

func pick(want map[string]string, line string) string {
	for k, v := range want {
		if strings.Contains(line, k) {
			return v
		}
	}
	return "no such command in the test"
}

func goBuild(t *testing.T, dir string, env []string, out string, args ...string) {
	t.Helper()
	c := exec.Command("go", append([]string{"build", "-o", out}, args...)...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	if b, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build %v: %v\n%s", args, err, b)
	}
}
