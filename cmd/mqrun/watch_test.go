package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

const watchedYAML = `
web: { listen: 127.0.0.1:0 }
plugins:
  word: { module: word.wasm }
pipelines:
  word: { from: ingest.words, steps: [word], to: words.out }
`

// say publishes a message and waits until it is in the output stream.
func say(t *testing.T, js jetstream.JetStream, subject, stream string, want uint64) {
	t.Helper()
	if _, err := js.Publish(t.Context(), subject, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	until(t, fmt.Sprintf("%d messages in %s", want, stream), func() bool { return streamMsgs(t, js, stream) == want })
}

// awaitLogs waits until stderr holds the text n times.
func (p *process) awaitLogs(t *testing.T, text string, n int) {
	t.Helper()
	until(t, fmt.Sprintf("the log says %d times %q", n, text), func() bool { return strings.Count(p.stderr.String(), text) >= n })
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	writeFile(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestHOT01_ConfigMap: both the configuration and a module are links into a
// folder that is swapped; each swap is a reload with the latest content.
func TestHOT01_ConfigMap(t *testing.T) {
	dir := t.TempDir()
	modules := t.TempDir()
	if err := copyGuests(modules); err != nil {
		t.Fatal(err)
	}
	swap := func(n int, module, yaml string) {
		t.Helper()
		version := filepath.Join(dir, fmt.Sprint("..", n))
		wasm, err := os.ReadFile(filepath.Join(modules, module))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(version, "pipelines.yaml"), yaml)
		writeFile(t, filepath.Join(version, "word.wasm"), string(wasm))
		for _, err := range []error{
			os.Symlink(fmt.Sprint("..", n), filepath.Join(dir, "..tmp")),
			os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if n > 1 {
			if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint("..", n-1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	yaml := func(attempts int) string {
		return strings.Replace(watchedYAML, "words.out", fmt.Sprintf("words.out, retry: { attempts: %d }", attempts), 1)
	}
	swap(1, "word.wasm", yaml(1))
	for _, name := range []string{"pipelines.yaml", "word.wasm"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := startRun(t, dir)
	_, js := p.connect(t)
	var n uint64
	for i, module := range []string{"pass.wasm", "word.wasm", "pass.wasm"} {
		// First only the module is another one, then only the configuration.
		for j, attempts := range []int{i + 1, i + 2} {
			swap(2*i+j+2, module, yaml(attempts))
			n++
			p.awaitLogs(t, `plan="swap word"`, int(n)) //nolint:gosec // small
			say(t, js, "ingest.words", "MQRUN_WORD", n)
		}
	}
	if _, body := p.ask(t, "GET", "/-/reload"); !strings.Contains(body, "generation 7, ") {
		t.Errorf("%q; want generation 7", body)
	}
}

// TestHOT02_RemovedPipeline: what a file has lost is gone from what runs, as
// after a fresh start.
func TestHOT02_RemovedPipeline(t *testing.T) {
	p := startRun(t, folder(t, watchedYAML+"  gone: { from: ingest.gone, steps: [word], to: gone.out, dead_letter: dlq.mine }\n"))
	_, js := p.connect(t)
	say(t, js, "ingest.gone", "MQRUN_GONE", 1)
	writeFile(t, filepath.Join(p.dir, "pipelines.yaml"), watchedYAML)
	p.awaitLog(t, `plan="stop gone"`)
	if _, err := js.Publish(t.Context(), "ingest.gone", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	say(t, js, "ingest.words", "MQRUN_WORD", 1)
	if n := streamMsgs(t, js, "MQRUN_GONE"); n != 1 {
		t.Errorf("%d outputs of the removed pipeline, want 1", n)
	}
	if i := consumerInfo(t, js, "MQRUN", "mqrun-gone"); i.NumPending != 1 || i.NumWaiting != 0 {
		t.Errorf("the removed pipeline's durable has %d pending, %d pulls; want 1 and 0", i.NumPending, i.NumWaiting)
	}
	_, before := p.ask(t, "GET", "/-/reload")
	p.signal(t, syscall.SIGINT)
	p.end(t)
	p = startRun(t, p.dir)
	_, after := p.ask(t, "GET", "/-/reload")
	if hashIn(before) != hashIn(after) {
		t.Errorf("after the reload %q, after a fresh start %q", before, after)
	}
}

// hashIn is the content hash in an answer of GET /-/reload.
func hashIn(text string) string {
	_, rest, _ := strings.Cut(text, "config ")
	hash, _, _ := strings.Cut(rest, ",")
	return hash
}

// TestHOT05_OtherABI: what cannot take a module's place is refused with the
// plugin, the file and the reason; messages go on through the old one.
func TestHOT05_OtherABI(t *testing.T) {
	p := startRun(t, folder(t, watchedYAML))
	_, js := p.connect(t)
	module := filepath.Join(p.dir, "word.wasm")
	good, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	const head = "\x00asm\x01\x00\x00\x00"
	for i, tt := range []struct{ name, wasm, want string }{
		{"no handler", head, "mq_handle"},
		{"a handler of other types", head +
			"\x01\x04\x01\x60\x00\x00" + // type: () -> ()
			"\x03\x02\x01\x00" + "\x05\x03\x01\x00\x01" +
			"\x07\x16\x02\x09mq_handle\x00\x00\x06memory\x02\x00" + "\x0a\x04\x01\x02\x00\x0b", "mq_handle"},
		{"unknown import", head +
			"\x01\x04\x01\x60\x00\x00" +
			"\x02\x0f\x01\x08mqrun_v1\x02no\x00\x00", "no"},
		{"text", "hello, this is no module", "word.wasm"},
	} {
		replace(t, module, tt.wasm)
		until(t, tt.name+" is refused", func() bool {
			_, body := p.ask(t, "GET", "/metrics")
			return strings.Contains(body, fmt.Sprintf("\nmqrun_config_reloads_refused_total %d\n", i+1))
		})
		_, body := p.ask(t, "GET", "/-/reload")
		for _, want := range []string{"refused", "plugins.word.module", `"word"`, tt.want} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %q does not say %q", tt.name, body, want)
			}
		}
		say(t, js, "ingest.words", "MQRUN_WORD", uint64(i+1)) //nolint:gosec // small
	}
	replace(t, module, string(good))
	p.awaitLog(t, `plan="no change"`)
	_, body := p.ask(t, "GET", "/metrics")
	for _, want := range []string{
		`mqrun_messages_total{pipeline="word",verdict="ok"} 4`, `mqrun_messages_total{pipeline="word",verdict="retried"} 0`,
		`mqrun_messages_total{pipeline="word",verdict="dead"} 0`, "mqrun_config_last_reload_successful 1",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
}

// TestHOT07_FolderOfFiles: a file that comes into a folder is started, a module
// that is built anew swapped, and a file that goes stopped.
func TestHOT07_FolderOfFiles(t *testing.T) {
	dir := folder(t, watchedYAML)
	// Relative paths start from the folder of the first file.
	p := startRun(t, dir, "-c", ".")
	_, js := p.connect(t)
	more := filepath.Join(dir, "more.yaml")
	writeFile(t, more, "pipelines:\n  more: { from: ingest.more, steps: [word], to: more.out }\n")
	p.awaitLog(t, `plan="start more"`)
	p.awaitLog(t, "more.yaml")
	say(t, js, "ingest.more", "MQRUN_MORE", 1)
	wasm, err := os.ReadFile(filepath.Join(dir, "pass.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(dir, "word.wasm"), string(wasm))
	p.awaitLog(t, `plan="swap more, word"`)
	if err := os.Remove(more); err != nil {
		t.Fatal(err)
	}
	p.awaitLog(t, `plan="stop more"`)
	for _, want := range []string{`files=.*more.yaml`, `files=.*word.wasm`} {
		_, name, _ := strings.Cut(want, "*")
		if !strings.Contains(p.stderr.String(), name) {
			t.Errorf("the log does not name %s", name)
		}
	}
}

// TestWatch_module: a module that was not there when the configuration was
// refused is taken once it is; content that comes again changes nothing.
func TestWatch_module(t *testing.T) {
	p := startRun(t, folder(t, watchedYAML), "--watch", "poll")
	wasm, err := os.ReadFile(filepath.Join(p.dir, "pass.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(p.dir, "pipelines.yaml"), strings.Replace(watchedYAML, "word.wasm", "later.wasm", 1))
	p.awaitLog(t, "does not exist")
	replace(t, filepath.Join(p.dir, "later.wasm"), string(wasm))
	p.awaitLog(t, `plan="swap word"`)
	replace(t, filepath.Join(p.dir, "later.wasm"), string(wasm))
	replace(t, filepath.Join(p.dir, "pipelines.yaml"), strings.Replace(watchedYAML, "word.wasm", "word.wasm, recycle: 5", 1))
	p.awaitLogs(t, `plan="swap word"`, 2)
	if _, body := p.ask(t, "GET", "/-/reload"); !strings.Contains(body, "generation 3, ") {
		t.Errorf("%q; want generation 3", body)
	}
}
