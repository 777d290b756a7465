package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/mqrun/mqrun/test/mqprocess"
	"github.com/mqrun/mqrun/test/natscluster"
)

// slow kills one of two workers whose handlers take longer for what is
// prefetched than ack_wait. What the one that died had in work is handled
// again, and nothing else.
func slow(ctx context.Context, b *bench) error {
	c, err := natscluster.Start(filepath.Join(b.dir, "nats"), 1, nil)
	if err != nil {
		return err
	}
	defer func() { b.stop(); c.Close() }()
	b.url = c.URL()
	b.head = fmt.Sprintf("nats: { url: %q, replicas: 1 }\n", c.URL())
	// 256 messages at 50 ms each by two handlers: 6.4 s.
	b.settings = "ack_wait: 3s, max_in_flight: 256, workers: 2, commit: " + b.commit
	b.kinds = []string{"pp", "pp", "pp", "pe", "ep", "pr"}
	if err := b.configure(); err != nil {
		return err
	}
	var workers [2]*mqprocess.Process
	for i := range workers {
		if workers[i], err = b.run(ctx); err != nil {
			return err
		}
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	var killed []int
	err = b.repeat(ctx, func() (err error) {
		victim := b.random.IntN(2)
		// It stands still while what the two have is counted.
		if err := workers[victim].Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		for _, at := range [][2]string{{inStream, "first"}, {midStream, "second"}} {
			_, unacked, e := b.way.open(ctx, b, at[0], at[1])
			b.spare += unacked
			err = errors.Join(err, e)
		}
		workers[victim].Kill()
		killed = append(killed, slices.Index(b.proc, workers[victim]))
		if err != nil {
			return err
		}
		workers[victim], err = b.run(ctx)
		return err
	})
	again := b.logs.needless(killed)
	b.more = fmt.Sprintf(" in_work=%d again_without_reason=%d", b.spare, again)
	if err == nil {
		err = b.count(ctx)
	}
	if err == nil && again > 0 {
		err = fmt.Errorf("%d inputs were handled again that no killed process had begun", again)
	}
	if err != nil {
		return err
	}
	return errCounted
}
