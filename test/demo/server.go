package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"

	"github.com/mqrun/mqrun/test/demo/count"
)

// server is a running `mqrun run`.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // how it ended
}

// start returns once mqrun says that everything runs.
func (d *demo) start(ctx context.Context) (*server, error) {
	s := &server{ended: make(chan struct{})}
	s.cmd = exec.Command(d.bin, "run", "-c", d.config, "-o", "json", "--log-level", "error",
		"--set", "server.store_dir="+d.store, "--set", "web.listen=127.0.0.1:0")
	s.cmd.Args = append(s.cmd.Args, d.set...)
	s.cmd.Stderr = d.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start mqrun: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start mqrun: %w; make build plugins", err)
	}
	ready := make(chan error, 1)
	go func() {
		var started struct{ Pipelines []any }
		ready <- json.NewDecoder(out).Decode(&started)
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("start mqrun: it did not come up: %w", errors.Join(err, s.err))
	}
	return s, nil
}

// stop asks for the end and waits for it.
func (s *server) stop(ctx context.Context) error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop mqrun: %w", err)
	}
	select {
	case <-s.ended:
	case <-ctx.Done():
		return fmt.Errorf("stop mqrun: %w", ctx.Err())
	}
	if s.err != nil {
		return fmt.Errorf("stop mqrun: it must end with 0: %w", s.err)
	}
	return nil
}

// kill ends it at once and waits until it is gone.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // an error says that it has ended
	<-s.ended
}

// feed publishes what the arguments say, or comes from in, with `mqrun pub`.
func (d *demo) feed(ctx context.Context, in io.Reader, args ...string) error {
	args = append([]string{
		"pub", "-q", "-c", d.config, "--set", "server.store_dir=" + d.store, "--timeout", "2m", count.Ingest,
	}, args...)
	cmd := exec.CommandContext(ctx, d.bin, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, d.log, d.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mqrun pub: %w", err)
	}
	return nil
}
