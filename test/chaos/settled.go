package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// way is what a way to commit looks like from the outside.
type way struct {
	window string // in which the outputs' streams know a repeated id
	// open is how many messages of a stream its pipeline has not settled: those
	// it has not been given, and those it has.
	open func(ctx context.Context, b *bench, stream, pipeline string) (pending, unacked int, err error)
	// floor is the last message of a stream below which its pipeline needs none.
	floor func(ctx context.Context, b *bench, stream, pipeline string) (uint64, error)
	// renewed does what a pipeline needs whose stream was made anew.
	renewed func(ctx context.Context, b *bench, pipeline string) error
}

// ways are those that scenarios run with, by the value of `commit`.
var ways = map[string]way{
	"each": {
		window: "2m", open: openOfConsumer, floor: ackFloor,
		renewed: func(context.Context, *bench, string) error { return nil },
	},
	// Nothing may rest on ids.
	"batch": {
		window: "100ms", open: openOfCheckpoint, floor: checkpointFloor,
		renewed: func(ctx context.Context, b *bench, pipeline string) error { return b.setPosition(ctx, pipeline) },
	},
}

func openOfConsumer(ctx context.Context, b *bench, stream, pipeline string) (pending, unacked int, err error) {
	c, err := b.js.Consumer(ctx, stream, "mqrun-"+pipeline)
	if err != nil {
		return 0, 0, err
	}
	i := c.CachedInfo()
	return int(i.NumPending), i.NumAckPending, nil
}

func ackFloor(ctx context.Context, b *bench, stream, pipeline string) (uint64, error) {
	c, err := b.js.Consumer(ctx, stream, "mqrun-"+pipeline)
	if err != nil {
		return 0, err
	}
	return c.CachedInfo().AckFloor.Stream, nil
}

// settled waits until nothing is open.
func (b *bench) settled(ctx context.Context) error {
	quiet, last := 0, ""
	for quiet < 3 {
		open := []string{}
		for _, at := range [][2]string{{inStream, "first"}, {midStream, "second"}} {
			// A server that is just being opened again may never answer.
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			p, u, err := b.way.open(try, b, at[0], at[1])
			cancel()
			if err != nil || p+u > 0 {
				open = append(open, fmt.Sprintf("%s: %d pending, %d unacked, %v", at[1], p, u, err))
			}
		}
		if ctx.Err() == nil {
			last = strings.Join(open, "; ")
		}
		if last == "" {
			quiet++
		} else {
			quiet = 0
		}
		if !sleep(ctx, 30*time.Millisecond) {
			return fmt.Errorf("not settled: %s", last)
		}
	}
	return nil
}

// reach waits until point inputs beyond base are acked by the first pipeline,
// and says how many are; it gives up once all are confirmed and settled.
func (b *bench) reach(ctx context.Context, base, point, all int) int {
	for ctx.Err() == nil {
		if acked, err := b.acked(ctx); err == nil && (acked-base >= point || acked-base >= all) {
			return acked - base
		}
	}
	return 0
}

// acked is how many inputs the first pipeline has acked.
func (b *bench) acked(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pending, unacked, err := b.way.open(ctx, b, inStream, "first")
	if err != nil {
		return 0, err
	}
	st, err := b.js.Stream(ctx, inStream)
	if err != nil {
		return 0, err
	}
	return int(st.CachedInfo().State.LastSeq) - pending - unacked, nil
}
