package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// process is a running `mqrun run` in a folder of its own.
type process struct {
	dir string
	cmd *exec.Cmd
	started
	stderr *lockedBuffer
	ready  chan error
	ended  chan struct{}
	code   int // once ended
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// folder has the guests and pipelines.yaml.
func folder(t *testing.T, pipelines string) string {
	t.Helper()
	dir := t.TempDir()
	if err := copyGuests(dir); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "pipelines.yaml"), pipelines)
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mqrunCommand runs this very program as mqrun, in dir.
func mqrunCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "mqrun") // TestMain goes by the name
	if err := os.Symlink(self, name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}

// startRun returns once everything runs.
func startRun(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := beginRun(t, dir, args...)
	p.up(t)
	return p
}

// beginRun returns at once.
func beginRun(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{dir: dir, stderr: &lockedBuffer{}, ready: make(chan error, 1), ended: make(chan struct{})}
	p.cmd = mqrunCommand(t, dir, append([]string{"run", "-o", "json"}, args...)...)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.ready <- json.NewDecoder(out).Decode(&p.started)
		p.code = exitCodeOf(p.cmd.Wait())
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("stderr of mqrun run:\n%s", p.stderr)
		}
	})
	return p
}

// up waits until everything runs.
func (p *process) up(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.ready:
		if err != nil {
			<-p.ended
			t.Fatalf("mqrun run ended with %d: %v", p.code, err)
		}
	case <-time.After(patience):
		t.Fatal("mqrun run does not start")
	}
}

func exitCodeOf(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// end waits for the exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.code
	case <-time.After(patience):
		t.Fatal("mqrun run does not end")
		return -1
	}
}

// awaitLog waits until stderr holds the text.
func (p *process) awaitLog(t *testing.T, text string) {
	t.Helper()
	until(t, "the log says "+text, func() bool { return strings.Contains(p.stderr.String(), text) })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("in vain: %s", what)
		}
	}
}

func (p *process) connect(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nc, err := mq.DialSocket(ctx, filepath.Join(p.dir, ".mqrun", socketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func consumerInfo(t *testing.T, js jetstream.JetStream, stream, name string) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := js.Consumer(t.Context(), stream, name)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo()
}

func streamMsgs(t *testing.T, js jetstream.JetStream, name string) uint64 {
	t.Helper()
	st, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return st.CachedInfo().State.Msgs
}

// runMain is a command in this process.
func runMain(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err lockedBuffer
	code = doMain(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}
