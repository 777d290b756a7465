package mq

import (
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestPercentForKeepsTheSpare(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		live uint64
		want int
	}{
		{0, 3200}, {mib, 3200}, {32 * mib, 400}, {100 * mib, 128}, {128 * mib, 100}, {4096 * mib, 100},
	} {
		if got := percentFor(tt.live, 128*mib); got != tt.want {
			t.Errorf("%d MiB alive: GOGC %d, want %d", tt.live/mib, got, tt.want)
		}
	}
}

func TestRelaxGC(t *testing.T) {
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	for _, tt := range []struct {
		env     string
		relaxed bool
	}{{"", true}, {"100", false}} {
		t.Setenv("GOGC", tt.env)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { RelaxGC(ctx, 1<<40); close(done) }()
			time.Sleep(2 * time.Second) // of the bubble's clock
			if got := percent(); (got > 100) != tt.relaxed {
				t.Errorf("GOGC=%q: %d percent, want more than 100: %v", tt.env, got, tt.relaxed)
			}
			cancel()
			<-done
		})
		if got := percent(); got != 100 {
			t.Errorf("%d percent after it ended", got)
		}
	}
}
