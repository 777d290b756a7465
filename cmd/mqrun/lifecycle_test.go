package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mqrun/mqrun/mq"
)

// sleeping has a long ack_wait: what mqrun does not give back does not come
// again within a test.
const sleeping = `
web: { listen: "" }
plugins:
  sleep: { module: sleep.wasm, limits: { timeout: 1m } }
pipelines:
  sleep: { from: ingest.words, steps: [sleep], to: words.out, workers: 4, ack_wait: 10m }
`

// inFlight starts a pipeline with 4 of 6 messages in work, each for so many
// seconds, and 2 that wait.
func inFlight(t *testing.T, seconds string, args ...string) *process {
	t.Helper()
	p := startRun(t, folder(t, sleeping), args...)
	_, js := p.connect(t)
	for i := range 6 {
		if _, err := js.Publish(t.Context(), "ingest.words", []byte(seconds+" "+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all 6 are delivered", func() bool { return consumerInfo(t, js, "MQRUN", "mqrun-sleep").NumAckPending == 6 })
	return p
}

// TestLIF07_ShutdownWithWorkInHand: what runs is finished and acked before the
// server stops, and nothing of it comes again.
func TestLIF07_ShutdownWithWorkInHand(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			p := inFlight(t, "1")
			p.signal(t, sig)
			if code := p.end(t); code != exitDone {
				t.Fatalf("exit code %d, want 0", code)
			}
			p = startRun(t, p.dir)
			_, js := p.connect(t)
			until(t, "the two that waited are handled", func() bool {
				return streamMsgs(t, js, "MQRUN_SLEEP") == 6 && consumerInfo(t, js, "MQRUN", "mqrun-sleep").NumAckPending == 0
			})
			// 4 were handled once, 2 given back and delivered again: a finished
			// one that came again would make it 9. On a slow machine the 2 were
			// begun as well.
			if info := consumerInfo(t, js, "MQRUN", "mqrun-sleep"); info.Delivered.Consumer > 8 {
				t.Errorf("%d deliveries of 6 messages, want 8 at most: what was in work is not delivered again", info.Delivered.Consumer)
			}
		})
	}
}

// TestACK05_HungHandlerIsStopped: a handler's time limit ends it, though it is
// longer than ack_wait, and the keep-alive ends with it: two attempts are two
// deliveries.
func TestACK05_HungHandlerIsStopped(t *testing.T) {
	yaml := strings.NewReplacer("timeout: 1m", "timeout: 2s", "ack_wait: 10m", "ack_wait: 1s, retry: { attempts: 2, initial: 20ms }").Replace(sleeping)
	p := startRun(t, folder(t, yaml))
	_, js := p.connect(t)
	if _, err := js.Publish(t.Context(), "ingest.words", []byte("9 x")); err != nil {
		t.Fatal(err)
	}
	until(t, "the dead letter is stored and the message acked", func() bool {
		return streamMsgs(t, js, "MQRUN_DLQ") == 1 && consumerInfo(t, js, "MQRUN", "mqrun-sleep").NumAckPending == 0
	})
	s, err := js.Stream(t.Context(), "MQRUN_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"Mqrun-Reason": "timeout", "Mqrun-Attempts": "2", "Mqrun-Deliveries": "2"} {
		if got := m.Header.Get(k); got != want {
			t.Errorf("%s %q, want %q", k, got, want)
		}
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}

// TestLIF07_GraceTooShort: what is not done in time is given back, comes again
// once, and the exit code says that it was so.
func TestLIF07_GraceTooShort(t *testing.T) {
	p := inFlight(t, "2", "--drain", "50ms")
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != exitFailed {
		t.Fatalf("exit code %d, want 1", code)
	}
	p = startRun(t, p.dir)
	_, js := p.connect(t)
	until(t, "all are handled", func() bool {
		return streamMsgs(t, js, "MQRUN_SLEEP") == 6 && consumerInfo(t, js, "MQRUN", "mqrun-sleep").NumAckPending == 0
	})
	if info := consumerInfo(t, js, "MQRUN", "mqrun-sleep"); info.Delivered.Consumer <= 6 || info.Delivered.Consumer > 12 {
		t.Errorf("%d deliveries of 6 messages, want 12 at most: each is delivered again once", info.Delivered.Consumer)
	}
}

// TestLIF01_SecondSignal: the server's own signal handling, which would end the
// process with 0 at once, is off; a second signal does not wait for handlers.
func TestLIF01_SecondSignal(t *testing.T) {
	p := inFlight(t, "9")
	p.signal(t, syscall.SIGINT)
	p.awaitLog(t, "stopping")
	p.signal(t, syscall.SIGINT)
	if code := p.end(t); code != exitInterrupted {
		t.Errorf("exit code %d, want 130", code)
	}
}

// TestLIF01_SignalWhenIdle: there is nothing to wait for.
func TestLIF01_SignalWhenIdle(t *testing.T) {
	p := startRun(t, folder(t, sleeping))
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != exitDone {
		t.Errorf("exit code %d of an idle mqrun, want 0", code)
	}
}

// TestLIF03_PortInUse: a clash is told with the address, by both listeners,
// and nothing is made on the server that has the port.
func TestLIF03_PortInUse(t *testing.T) {
	other, err := mq.Open(t.Context(), mq.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", NoAuth: true, Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := other.GetServer().Addr().String()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tt := range []struct{ name, set, address string }{
		{"nats", "server.listen", taken},
		{"web", "web.listen", l.Addr().String()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, sleeping)
			code, stdout, stderr := runMain(t, "run", "-c", filepath.Join(dir, "pipelines.yaml"), "--set", tt.set+"="+tt.address)
			if code != exitFailed || !strings.Contains(stderr, tt.address+" is in use") || stdout != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q; want 1 and the address", code, stdout, stderr)
			}
			for range other.JetStream().ListStreams(t.Context()).Info() {
				t.Error("a stream was made on the other server")
			}
			if _, err := os.Stat(filepath.Join(dir, ".mqrun", "jetstream", "$G")); err == nil {
				t.Error("a stream was made in the store")
			}
		})
	}
}

// TestSEC05_NothingListens: by default no other program reaches the server.
func TestSEC05_NothingListens(t *testing.T) {
	p := startRun(t, folder(t, sleeping))
	if p.NATS != "" || p.Web != "" {
		t.Errorf("listens on %q and %q", p.NATS, p.Web)
	}
	inodes := listening(t)
	fds, err := filepath.Glob("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/fd/*")
	if err != nil || len(fds) == 0 {
		t.Skip("no /proc here")
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && inodes[to] {
			t.Errorf("%s listens on a TCP port", fd)
		}
	}
}

// listening are the TCP sockets that listen, as their file descriptors read.
func listening(t *testing.T) map[string]bool {
	t.Helper()
	inodes := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(file) // not there: no such sockets
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	return inodes
}
