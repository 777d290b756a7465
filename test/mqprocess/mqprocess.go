// Package mqprocess runs mqrun as a process of its own, for the programs that
// count what comes of it.
//
// # Caveats
//
// A process that is neither stopped nor killed outlives the program.
package mqprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Process is a running `mqrun run`.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // how it ended
}

// Start runs bin with a configuration and returns once mqrun says that
// everything runs. What it logs goes to log.
func Start(ctx context.Context, bin, config string, log io.Writer, args ...string) (*Process, error) {
	p := &Process{ended: make(chan struct{})}
	p.cmd = exec.Command(bin, append([]string{"run", "-c", config, "-o", "json"}, args...)...)
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start mqrun: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start mqrun: %w; make build plugins", err)
	}
	ready := make(chan error, 1)
	go func() {
		var started struct{ Pipelines []any }
		ready <- json.NewDecoder(out).Decode(&started)
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("start mqrun: it did not come up: %w", errors.Join(err, p.err))
	}
	return p, nil
}

// Stop asks for the end and waits for it. mqrun must end with 0.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
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

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends it at once and waits until it is gone. It does nothing when it has
// ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error says that it has ended
	<-p.ended
}
