package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/test/mqprocess"
)

// errElsewhere is no error: the scenario ran and counted in a namespace.
var errElsewhere = errors.New("ran elsewhere")

const tmpfsSize = 96 << 20

// disk fills the store's disk under load, waits until publishes are refused,
// makes room again and expects all that was confirmed. Every other time the
// process is killed and started again while the disk is full. The disk is a
// tmpfs in a mount namespace of its own.
func disk(ctx context.Context, b *bench) error {
	if b.inside == "" {
		return b.unshare(ctx)
	}
	if err := b.serve(filepath.Join(b.inside, "store")); err != nil {
		return err
	}
	p, err := b.run(ctx)
	if err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	filler := filepath.Join(b.inside, "filler")
	for b.done < b.rounds {
		if err := b.feed(ctx, perRound); err != nil {
			return err
		}
		if err := fill(filler); err != nil {
			return err
		}
		load, stop := context.WithCancel(ctx)
		fed := make(chan error, 1)
		go func() { fed <- b.feed(load, 100*perRound) }()
		refused := b.refused(ctx)
		stop()
		if err := <-fed; err != nil && load.Err() == nil {
			return err
		}
		if !refused {
			return errors.New("no publish was refused on a full disk")
		}
		if b.done%2 == 1 {
			p.Kill()
			if p, err = b.runFull(ctx); err != nil {
				return err
			}
		}
		if err := os.Remove(filler); err != nil {
			return err
		}
		if p == nil {
			if p, err = b.run(ctx); err != nil {
				return err
			}
		}
		if !b.works(ctx, 20*time.Second) {
			return errors.New("nothing is stored although there is room again")
		}
		if err := b.feed(ctx, perRound); err != nil {
			return err
		}
		if err := b.settled(ctx); err != nil {
			return err
		}
		b.done++
	}
	return nil
}

// runFull starts mqrun on the full disk. It may come up, or end and say why.
func (b *bench) runFull(ctx context.Context) (*mqprocess.Process, error) {
	try, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	p, err := b.run(try)
	if err == nil {
		fmt.Fprintln(b.out, "disk: started while it is full")
		return p, nil
	}
	if try.Err() != nil {
		return nil, fmt.Errorf("on a full disk it neither comes up nor ends: %w", err)
	}
	if !strings.Contains(b.logs.tail(), "no space left on device") {
		return nil, fmt.Errorf("it ends on a full disk and does not say why: %w", err)
	}
	fmt.Fprintln(b.out, "disk: not started while it is full")
	return nil, nil //nolint:nilnil // none runs, as it may be
}

// unshare runs the scenario again where it may mount: in a mount namespace of
// root's, or of a user namespace where somebody else may make one.
func (b *bench) unshare(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	mount := filepath.Join(b.dir, "tmpfs")
	if err := os.Mkdir(mount, 0o700); err != nil {
		return err
	}
	how := []string{"-m"}
	if os.Getuid() != 0 {
		how = []string{"-U", "-r", "-m"}
	}
	args := slices.Concat(how, []string{"sh", "-c", `mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"`, "sh", strconv.Itoa(tmpfsSize), mount,
		self, "-bin", b.bin, "-rounds", strconv.Itoa(b.rounds), "-seed", strconv.FormatUint(b.seed, 10), "-commit", b.commit, "-short=" + strconv.FormatBool(b.short), "-inside", mount, "disk"})
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "unshare", args...) // it has the same limit
	cmd.Stdout, cmd.Stderr = b.out, os.Stderr
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			_ = cmd.Process.Signal(os.Interrupt)
		}
	})()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("in a mount namespace (needs the right to make one and to mount there): %w", err)
	}
	return errElsewhere
}

// fill writes until nothing fits any more.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 4<<10)
	for {
		if _, err := f.Write(block); err != nil {
			return f.Close()
		}
	}
}

// refused waits until a publish of ours fails for want of room.
func (b *bench) refused(ctx context.Context) bool {
	for range 200 {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := b.js.PublishMsg(try, &nats.Msg{Subject: "ingest.unread", Data: make([]byte, 64<<10)}, jetstream.WithRetryAttempts(0))
		cancel()
		if err != nil {
			return ctx.Err() == nil
		}
	}
	return false
}

// works reports whether a publish succeeds within that time.
func (b *bench) works(ctx context.Context, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for ctx.Err() == nil {
		try, stop := context.WithTimeout(ctx, time.Second)
		_, err := b.js.Publish(try, "ingest.unread", nil, jetstream.WithRetryAttempts(0))
		stop()
		if err == nil {
			return true
		}
		sleep(ctx, 100*time.Millisecond)
	}
	return false
}
