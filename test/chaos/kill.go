package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

const perRound = 400

// under feeds one round of inputs and calls harm while some of them, but not
// all, are acked. It reports whether that was so.
func (b *bench) under(ctx context.Context, harm func() error) (counts bool, err error) {
	st, err := b.js.Stream(ctx, inStream)
	if err != nil {
		return false, err
	}
	base := int(st.CachedInfo().State.LastSeq)
	fed := make(chan error, 1)
	go func() { fed <- b.feed(ctx, perRound) }()
	acked := b.reach(ctx, base, 2+b.random.IntN(perRound*3/4), perRound)
	if err := harm(); err != nil {
		return false, err
	}
	if err := <-fed; err != nil {
		return false, err
	}
	return acked > 1 && acked < perRound, b.settled(ctx)
}

// repeat does rounds until enough of them count; some may not.
func (b *bench) repeat(ctx context.Context, harm func() error) error {
	for tries := 0; b.done < b.rounds && tries < 2*b.rounds+5; tries++ {
		counts, err := b.under(ctx, harm)
		if err != nil {
			return fmt.Errorf("round %d: %w", tries+1, err)
		}
		if counts {
			b.done++
		}
	}
	return nil
}

// kill ends the one process, server and all, at random moments.
func kill(ctx context.Context, b *bench) error {
	if err := b.serve("store"); err != nil {
		return err
	}
	p, err := b.run(ctx)
	if err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	return b.repeat(ctx, func() (err error) {
		p.Kill()
		p, err = b.run(ctx)
		return err
	})
}

// stop ends the process in order under load: every message is handled once.
func stop(ctx context.Context, b *bench) error {
	if err := b.serve("store"); err != nil {
		return err
	}
	p, err := b.run(ctx)
	if err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	return b.repeat(ctx, func() error {
		if err := p.Stop(ctx); err != nil {
			return err
		}
		p, err = b.run(ctx)
		return err
	})
}

// reload gives the running process another configuration under load: every
// message is handled once.
func reload(ctx context.Context, b *bench) error {
	if err := b.serve("store"); err != nil {
		return err
	}
	p, err := b.run(ctx)
	if err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	return b.repeat(ctx, func() error {
		if err := b.configure(); err != nil {
			return err
		}
		before := b.logs.count("reloaded")
		if err := p.Signal(syscall.SIGHUP); err != nil {
			return err
		}
		if !b.logs.await(ctx, "reloaded", before) {
			return errors.New("the configuration was not taken")
		}
		return nil
	})
}
