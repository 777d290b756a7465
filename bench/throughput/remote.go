package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mqrun/mqrun/mq"
)

// serve is this program as a server of its own, on a free port of loopback,
// until its standard input ends. It prints its URL.
func serve(ctx context.Context, dir string, sync time.Duration) error {
	e, err := mq.Open(ctx, mq.Options{StoreDir: filepath.Join(dir, "store"), MaxBytes: maxBytes, SyncInterval: sync, Listen: "127.0.0.1:0", NoAuth: true, Bare: true, Logger: quiet})
	if err != nil {
		return err
	}
	fmt.Println(e.GetServer().ClientURL())
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
	}
	return e.Close()
}

// remote starts serve as a process and connects to it.
func remote(ctx context.Context, dir string, sync time.Duration) (*mq.EmbeddedNATS, func() error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve", dir, "-sync", sync.String())
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	end := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start the server: %w", err), end())
	}
	e, err := mq.Open(ctx, mq.Options{StoreDir: dir, URL: strings.TrimSpace(url), Bare: true, Logger: quiet})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return e, func() error { return errors.Join(e.Close(), end()) }, nil
}
