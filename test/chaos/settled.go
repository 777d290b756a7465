package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// way is what a way to commit looks like from the outside.
type way struct {
	// open is how many messages of a stream its pipeline has not settled: those
	// it has not been given, and those it has.
	open func(b *bench, ctx context.Context, stream, pipeline string) (pending, unacked int, err error)
}

// ways are those that scenarios run with, by the value of `commit`.
var ways = map[string]way{
	"each": {openOfConsumer},
}

func openOfConsumer(b *bench, ctx context.Context, stream, pipeline string) (pending, unacked int, err error) {
	c, err := b.js.Consumer(ctx, stream, "mqrun-"+pipeline)
	if err != nil {
		return 0, 0, err
	}
	i := c.CachedInfo()
	return int(i.NumPending), i.NumAckPending, nil
}

// settled waits until nothing is open.
func (b *bench) settled(ctx context.Context) error {
	quiet := 0
	for quiet < 3 {
		open := []string{}
		for _, at := range [][2]string{{inStream, "first"}, {midStream, "second"}} {
			p, u, err := b.way.open(b, ctx, at[0], at[1])
			if err != nil || p+u > 0 {
				open = append(open, fmt.Sprintf("%s: %d pending, %d unacked, %v", at[1], p, u, err))
			}
		}
		last := strings.Join(open, "; ")
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
	for {
		pending, unacked, err := b.way.open(b, ctx, inStream, "first")
		if err == nil {
			st, err := b.js.Stream(ctx, inStream)
			if err == nil {
				acked := int(st.CachedInfo().State.LastSeq) - pending - unacked - base
				if acked >= point || acked >= all {
					return acked
				}
			}
		}
		if ctx.Err() != nil {
			return 0
		}
	}
}
