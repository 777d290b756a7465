package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
)

// TestPub_restart: a publisher goes on by itself when the server was killed and
// is back, and every line is stored once.
func TestPub_restart(t *testing.T) {
	p := startRun(t, folder(t, sleeping))
	_, js := p.connect(t)
	cmd := mqrunCommand(t, p.dir, "pub", "ingest.words", "--lines", "-o", "json")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	fmt.Fprintln(in, "0 before")
	until(t, "the first line is stored", func() bool { return streamMsgs(t, js, "MQRUN") == 1 })
	p.signal(t, syscall.SIGKILL)
	p.end(t)
	fmt.Fprintln(in, "0 meanwhile")
	p = startRun(t, p.dir)
	_, js = p.connect(t)
	until(t, "the second line is stored", func() bool { return streamMsgs(t, js, "MQRUN") == 2 })
	fmt.Fprintln(in, "0 after")
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if n := streamMsgs(t, js, "MQRUN"); n != 3 || !strings.Contains(out.String(), `"stored": 3,`) {
		t.Errorf("%d messages are stored; pub says %s", n, &out)
	}
}

// TestPub_gone: a server that stays away is told about within --timeout.
func TestPub_gone(t *testing.T) {
	p := startRun(t, folder(t, sleeping))
	_, js := p.connect(t)
	cmd := mqrunCommand(t, p.dir, "pub", "ingest.words", "--lines", "--timeout", "200ms")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	fmt.Fprintln(in, "0 before")
	until(t, "the first line is stored", func() bool { return streamMsgs(t, js, "MQRUN") == 1 })
	p.signal(t, syscall.SIGKILL)
	p.end(t)
	fmt.Fprintln(in, "0 after")
	// The server may end between storing the first line and confirming it.
	code, line, far := exitCodeOf(cmd.Wait()), "stdin:2:", "stored 1 message "
	if strings.Contains(stderr.String(), "stdin:1:") {
		line, far = "stdin:1:", ""
	}
	if code != exitFailed || !strings.Contains(stderr.String(), line+" no confirmation within 200ms") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
	if !strings.Contains(out.String(), far) {
		t.Errorf("stdout %q, want %q: how far it came", out.String(), far)
	}
}

// TestPub_interrupted: an interrupt ends a publisher that waits for its stdin.
func TestPub_interrupted(t *testing.T) {
	p := startRun(t, folder(t, sleeping))
	_, js := p.connect(t)
	cmd := mqrunCommand(t, p.dir, "pub", "ingest.words", "--lines")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "0 before")
	until(t, "the line is stored", func() bool { return streamMsgs(t, js, "MQRUN") == 1 })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(cmd.Wait()); code != exitInterrupted {
		t.Errorf("exit code %d, want 130", code)
	}
}

func TestReadUpTo(t *testing.T) {
	long := strings.Repeat("a", 100)
	for _, tt := range []struct {
		name, in string
		line     bool
		want     []string // what is kept of each, and its size
	}{
		{"nothing", "", true, []string{`"" 0 EOF`}},
		{"nothing as one", "", false, []string{`"" 0 EOF`}},
		{"lines", "a\n\nbc\r\nd", true, []string{`"a" 1`, `"" 0`, `"bc" 2`, `"d" 1 EOF`}},
		{"last line ends", "a\n", true, []string{`"a" 1`, `"" 0 EOF`}},
		{"as one", "a\r\nb\n", false, []string{`"a\r\nb\n" 5 EOF`}},
		{"only a return", "\r\n", true, []string{`"" 0`, `"" 0 EOF`}},
		{"too long", long + "\nb\n", true, []string{`"` + long[:21] + `" 100`, `"b" 1`, `"" 0 EOF`}},
		{"too long as one", long, false, []string{`"` + long[:21] + `" 100 EOF`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := bufio.NewReaderSize(bytes.NewReader([]byte(tt.in)), 16)
			for _, want := range tt.want {
				data, size, err := readUpTo(r, 20, tt.line)
				got := fmt.Sprintf("%q %d", data, size)
				if errors.Is(err, io.EOF) {
					got += " EOF"
				}
				if got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
}
