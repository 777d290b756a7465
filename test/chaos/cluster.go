package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mqrun/mqrun/test/mqprocess"
	"github.com/mqrun/mqrun/test/natscluster"
)

// errCounted is no error: the scenario has counted by itself, because its
// server ends with it.
var errCounted = errors.New("counted")

// cluster stops the nodes of an external cluster one at a time, and kills one of
// two workers.
func cluster(ctx context.Context, b *bench) error {
	c, err := natscluster.Start(filepath.Join(b.dir, "nats"), 3, nil)
	if err != nil {
		return err
	}
	defer func() { b.stop(); c.Close() }()
	b.url = c.URL()
	b.head = fmt.Sprintf("nats: { url: %q, replicas: 3 }\n", c.URL())
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
	round := 0
	err = b.repeat(ctx, func() (err error) {
		round++
		node, victim := round%3, b.random.IntN(2)
		c.Stop(node)
		if round%2 == 0 {
			workers[victim].Kill()
		}
		sleep(ctx, time.Duration(b.random.IntN(500))*time.Millisecond)
		if err := c.Restart(node); err != nil {
			return err
		}
		if round%2 == 0 {
			workers[victim], err = b.runAgain(ctx)
		}
		return err
	})
	if err == nil {
		err = b.count(ctx)
	}
	if err != nil {
		return err
	}
	return errCounted
}

// runAgain starts mqrun as a supervisor does: it may end when a node has just
// come back and does not answer yet.
func (b *bench) runAgain(ctx context.Context) (p *mqprocess.Process, err error) {
	for range 5 {
		if p, err = b.run(ctx); err == nil || !sleep(ctx, time.Second) {
			break
		}
	}
	return p, err
}
