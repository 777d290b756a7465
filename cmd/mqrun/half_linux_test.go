package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHOT03_HalfWritten: neither an empty file nor half of one takes anything
// away, a typo is told once, and the good content after it is taken.
func TestHOT03_HalfWritten(t *testing.T) {
	if f, err := os.Create(filepath.Join(t.TempDir(), "f")); err != nil {
		t.Fatal(err)
	} else if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); !errors.Is(err, unix.EAGAIN) {
		t.Skip("on this file system it cannot be told that a writer is still at work")
	} else {
		f.Close()
	}
	p := startRun(t, folder(t, watchedYAML+"  more: { from: ingest.more, steps: [word], to: more.out }\n"))
	_, js := p.connect(t)
	// Half of it is a whole configuration, with one pipeline less.
	slowly := func(name string, parts ...string) {
		t.Helper()
		f, err := os.Create(filepath.Join(p.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, part := range parts {
			time.Sleep(200 * time.Millisecond) // the case's own pause, longer than the quiet time
			if _, err := f.WriteString(part); err != nil {
				t.Fatal(err)
			}
		}
	}
	slowly("pipelines.yaml", watchedYAML, "  more: { from: ingest.more, stepz: [word], to: more.out }\n")
	p.awaitLog(t, "unknown key")
	slowly("pipelines.yaml", watchedYAML, "  more: { from: ingest.more, stepz: [word], to: more.out }\n# and again\n")
	slowly("pipelines.yaml", watchedYAML, "  more: { from: ingest.more, steps: [word], to: more.out, retry: { attempts: 3 } }\n")
	p.awaitLog(t, `plan="swap more"`)
	wasm, err := os.ReadFile(filepath.Join(p.dir, "pass.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	slowly("word.wasm", string(wasm[:len(wasm)/2]), string(wasm[len(wasm)/2:]))
	p.awaitLog(t, `plan="swap more, word"`)
	say(t, js, "ingest.more", "MQRUN_MORE", 1)
	say(t, js, "ingest.words", "MQRUN_WORD", 1)
	log := p.stderr.String()
	if n := strings.Count(log, "unknown key"); n != 1 {
		t.Errorf("the typo was told %d times, want once", n)
	}
	if strings.Contains(log, `plan="stop`) {
		t.Error("a pipeline was stopped")
	}
}
