package host

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// goGuest builds testdata/goguest and gives what loads it; the cache saves the
// second compilation.
func goGuest(t *testing.T) func(Settings) *Plugin {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and compiles a Go module")
	}
	wasm := filepath.Join(t.TempDir(), "goguest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", wasm, "./testdata/goguest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the Go guest: %v\n%s", err, out)
	}
	b, err := os.ReadFile(wasm)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache")})
	return func(s Settings) *Plugin {
		t.Helper()
		s.Name, s.File, s.Workers = "goguest", "goguest.wasm", 1
		p, err := r.Load(t.Context(), b, s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

func TestStandardGo(t *testing.T) {
	loadGo := goGuest(t)
	p := loadGo(Settings{Limits: Limits{Timeout: 20 * time.Second}})
	say := func(what string) string {
		t.Helper()
		res := run(t, p, message(what))
		if res.Code != OK || len(res.Outputs) != 1 {
			t.Fatalf("%s: %+v", what, res)
		}
		return string(res.Outputs[0].Data)
	}
	for what, want := range map[string]string{
		"echo": "echo", "nap": "nap", "goroutines": "45", "recover": "boom", "json": `{"a":[1,2,3]}`, "files": "true 0 1",
	} {
		if got := say(what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}

	t.Run("clock and random", func(t *testing.T) {
		ids := map[string]bool{}
		for range 2 {
			at, id, _ := strings.Cut(say("time"), " ")
			now, err := time.Parse(time.RFC3339Nano, at)
			if err != nil || time.Since(now).Abs() > 10*time.Second || ids[id] {
				t.Errorf("%s %s", at, id)
			}
			ids[id] = true
		}
	})

	for _, tt := range []struct{ what, reason, text, guest string }{
		{"panic", ReasonTrap, `goguest: message 17 of INGEST trapped: unreachable in main.panicNow; guest said: "panic: boom"`, "panic: boom"},
		{"nil map", ReasonTrap, `unreachable in main.handle; guest said: "panic: assignment to entry in nil map"`, "nil map"},
		{"exit", ReasonExit, "goguest: message 17 of INGEST exited with code 0", ""},
		{"fatal", ReasonExit, "exited with code 1; guest said: ", "config missing"},
		{"deadlock", ReasonTrap, `guest said: "fatal error: all goroutines are asleep - deadlock!"`, "deadlock"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			ce := fail(t, p, message(tt.what))
			if ce.Reason != tt.reason || !strings.Contains(ce.Text, tt.text) || !strings.Contains(ce.Guest, tt.guest) {
				t.Errorf("%s\n%s\n%s\n%s", ce.Reason, ce.Text, ce.Guest, ce.Trace)
			}
			if got := say("state"); got != "1 false" {
				t.Errorf("the next message found state %q", got)
			}
		})
	}
	t.Run("json after a panic", func(t *testing.T) {
		fail(t, p, message("panic"))
		if got := say("json"); got != `{"a":[1,2,3]}` {
			t.Error(got)
		}
	})
	t.Run("panic text for the dead letter", func(t *testing.T) {
		var res Result
		if err := p.Handle(t.Context(), message("panic"), &res); err == nil || !strings.Contains(string(res.Log), "panic: boom\n") {
			t.Errorf("%v: %q", err, res.Log)
		}
	})
	t.Run("leak", func(t *testing.T) {
		if ce := fail(t, p, message("leak")); ce.Reason != ReasonMemory {
			t.Errorf("%s: %s", ce.Reason, ce.Text)
		}
		say("echo")
	})
	t.Run("stopped", func(t *testing.T) {
		p := loadGo(Settings{Limits: Limits{Timeout: 300 * time.Millisecond}})
		for _, what := range []string{"sleep", "recurse"} {
			err := p.Handle(t.Context(), message(what), &Result{})
			var ce *CallError
			if !errors.As(err, &ce) || ce.Reason == ReasonABI || ce.Reason == ReasonExit {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
