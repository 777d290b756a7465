package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// process is a running `mqrun run`.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // how it ended
}

// start returns once mqrun says that everything runs.
func start(ctx context.Context, bin, config string, l *logs, args ...string) (*process, error) {
	p := &process{ended: make(chan struct{})}
	p.cmd = exec.Command(bin, append([]string{"run", "-c", config, "-o", "json", "--log-format", "json"}, args...)...)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start mqrun: %w", err)
	}
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start mqrun: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start mqrun: %w; make build", err)
	}
	ready := make(chan error, 1)
	go func() {
		var read sync.WaitGroup
		read.Go(func() { l.read(log) })
		var started struct{ Pipelines []any }
		ready <- json.NewDecoder(out).Decode(&started)
		read.Wait()
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("start mqrun: it did not come up: %w", errors.Join(err, p.err))
	}
	return p, nil
}

// stop asks for the end and waits for it.
func (p *process) stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop mqrun: %w", err)
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		return fmt.Errorf("stop mqrun: %w", ctx.Err())
	}
	if p.err != nil {
		return fmt.Errorf("stop mqrun: it must end with 0: %w", p.err)
	}
	return nil
}

// kill ends it at once and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it has ended
	<-p.ended
}

// logs counts the lines that the guest writes, one for each call, and keeps the
// last others.
type logs struct {
	mu    sync.Mutex
	calls map[string]int // pipeline and input
	last  []string
}

func newLogs() *logs { return &logs{calls: map[string]int{}} }

const keptLines = 40

func (l *logs) read(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var line struct{ Msg, Source, Pipeline string }
		if json.Unmarshal(s.Bytes(), &line) == nil && line.Source == "log" {
			l.mu.Lock()
			l.calls[line.Pipeline+" "+line.Msg]++
			l.mu.Unlock()
			continue
		}
		l.mu.Lock()
		if l.last = append(l.last, s.Text()); len(l.last) > keptLines {
			l.last = l.last[1:]
		}
		l.mu.Unlock()
	}
}

// handled is how many calls there were.
func (l *logs) handled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, k := range l.calls {
		n += k
	}
	return n
}

func (l *logs) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n") + "\n"
}
