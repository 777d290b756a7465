package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/mqrun/mqrun/test/demo/count"
	"github.com/mqrun/mqrun/test/mqprocess"
)

// start returns once mqrun says that everything runs.
func (d *demo) start(ctx context.Context) (*mqprocess.Process, error) {
	args := append([]string{"--log-level", "error", "--set", "server.store_dir=" + d.store, "--set", "web.listen=127.0.0.1:0"}, d.set...)
	return mqprocess.Start(ctx, d.bin, d.config, d.log, args...)
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
