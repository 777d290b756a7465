package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const wordy = `
web: { listen: 127.0.0.1:0 }
plugins:
  word: { module: word.wasm }
pipelines:
  word: { from: ingest.words, steps: [word], to: words.out }
`

// ask sends a request to the web listener and returns status and body.
func (p *process) ask(t *testing.T, method, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.Web+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestOBS06_WasMyReloadTaken: a good, a bad and an empty reload can be told
// apart in the answer, in the log, and afterwards.
func TestOBS06_WasMyReloadTaken(t *testing.T) {
	p := startRun(t, folder(t, wordy), "--watch", "off") // each reload is one that is asked for
	file := filepath.Join(p.dir, "pipelines.yaml")
	_, js := p.connect(t)
	created := consumerInfo(t, js, "MQRUN", "mqrun-word").Created
	expect := func(method, path string, status int, text string) {
		t.Helper()
		if got, body := p.ask(t, method, path); got != status || !strings.Contains(body, text) {
			t.Errorf("%s %s: %d %q; want %d %q", method, path, got, body, status, text)
		}
	}
	expect("GET", "/readyz", 200, "ok")
	expect("GET", "/-/reload", 200, "generation 1, ")
	expect("POST", "/-/reload", 200, "generation 2: no change")

	writeFile(t, file, strings.Replace(wordy, "from:", "form:", 1))
	expect("POST", "/-/reload", 422, `pipelines.yaml:6:11: pipelines.word.form: unknown key (did you mean "from"?)`)
	expect("GET", "/-/reload", 200, "generation 2, ")
	expect("GET", "/-/reload", 200, "refused, nothing changed")
	expect("GET", "/readyz", 200, "ok\nthe last reload was refused, generation 2 goes on:\npipelines.yaml:6:")
	expect("GET", "/metrics", 200, "\nmqrun_config_last_reload_successful 0\n")
	expect("GET", "/metrics", 200, "\nmqrun_config_generation 2\n")

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGHUP)
	p.awaitLog(t, "no such file")
	writeFile(t, file, wordy+"  more: { from: ingest.more, steps: [word], to: more.out }\n")
	p.signal(t, syscall.SIGHUP)
	p.awaitLog(t, `plan="start more"`)
	expect("GET", "/-/reload", 200, "by signal: start more")
	if got := consumerInfo(t, js, "MQRUN", "mqrun-word").Created; !got.Equal(created) {
		t.Error("a reload that did not touch the pipeline made its consumer anew")
	}
	if _, err := js.Publish(t.Context(), "ingest.more", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	until(t, "the new pipeline works", func() bool { return streamMsgs(t, js, "MQRUN_MORE") == 1 })
}

// TestOBS04_ValidateIsRun: whatever run refuses at start validate refuses with
// the same words and the same exit code.
func TestOBS04_ValidateIsRun(t *testing.T) {
	for _, tt := range []struct {
		name, old, with string
		code            int
	}{
		{"missing file", "", "", exitFailed},
		{"empty file", wordy, "", exitInvalid},
		{"not yaml", "plugins:", "plugins: [", exitInvalid},
		{"second document", "plugins:", "---\nplugins:", exitInvalid},
		{"misspelt key", "steps:", "stepps:", exitInvalid},
		{"duplicate key", "pipelines:", "pipelines: {}\npipelines:", exitInvalid},
		{"bare number", "word.wasm", "word.wasm, limits: { timeout: 30 }", exitInvalid},
		{"overflow", "word.wasm", "word.wasm, limits: { memory: 99999999999999999999 }", exitInvalid},
		{"unquoted wildcard", "from: ingest.words", "from: >", exitInvalid},
		{"unset variable", "words.out", "${MQRUN_TEST_NOT_SET}", exitInvalid},
		{"unknown plugin", "[word]", "[wrod]", exitInvalid},
		{"module is missing", "word.wasm", "nothere.wasm", exitInvalid},
		{"module outside", "word.wasm", "../../etc/passwd", exitInvalid},
		{"module is no wasm", "word.wasm", "pipelines.yaml", exitInvalid},
		{"module is pinned", "word.wasm", "word.wasm, sha256: " + strings.Repeat("0", 64), exitInvalid},
		{"key of a later version", "words.out", "words.out, partitions: 4", exitInvalid},
		{"output is input", "words.out", "ingest.words", exitInvalid},
		{"two streams hold one subject", "plugins:", "streams: { A: { subjects: [a.b] }, B: { subjects: [\"a.*\"] } }\nplugins:", exitInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, strings.Replace(wordy, tt.old, tt.with, 1))
			file := filepath.Join(dir, "pipelines.yaml")
			if tt.code == exitFailed {
				file = filepath.Join(dir, "nothere.yaml")
			}
			code, out, validate := runMain(t, "validate", "-c", file)
			if code != tt.code || validate == "" || out != "" {
				t.Errorf("validate: exit code %d, stdout %q, stderr %q; want %d and the problems on stderr", code, out, validate, tt.code)
			}
			code, out, run := runMain(t, "run", "--log-level", "error", "-c", file)
			if code != tt.code || run != validate || out != "" {
				t.Errorf("run: exit code %d, stdout %q, stderr\n%s\nwant %d and what validate said:\n%s", code, out, run, tt.code, validate)
			}
		})
	}
}

// TestSEC01_NoSecretsInLogs: a token is in nothing that is printed or logged.
func TestSEC01_NoSecretsInLogs(t *testing.T) {
	const secret = "s3cret-t0ken"
	p := startRun(t, folder(t, wordy), "--set", "server.listen=127.0.0.1:0", "--set", "server.auth="+secret, "--log-level", "debug")
	args := []string{"-s", strings.Replace(p.NATS, "//", "//"+secret+"@", 1), "pub", "ingest.words", "hello"}
	code, _, stderr := runMain(t, args...)
	if code != exitDone {
		t.Fatalf("pub with the token: exit code %d, %s", code, stderr)
	}
	args[1] = strings.Replace(p.NATS, "//", "//wr0ng@", 1)
	if code, _, stderr = runMain(t, args...); code != exitFailed || strings.Contains(stderr, "wr0ng") {
		t.Errorf("pub with a wrong token: exit code %d, %s", code, stderr)
	}
	args[1] = p.NATS
	if code, _, _ = runMain(t, args...); code != exitFailed {
		t.Errorf("pub without the token: exit code %d", code)
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	if log := p.stderr.String(); strings.Contains(log, secret) || strings.Contains(log, "wr0ng") {
		t.Errorf("the log holds a secret:\n%s", log)
	}
}
