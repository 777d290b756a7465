package mq

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// gcPercent is Go's default, below which RelaxGC never goes.
const gcPercent = 100

// RelaxGC lets the garbage collector of this process wait until spare bytes were
// allocated since it ran last, until ctx is done. A broker allocates some 10 KiB
// for a message and keeps next to nothing, so with Go's default (when the heap has
// doubled) a small heap is collected dozens of times a second, for a sixth of all
// CPU time. Once more than spare bytes are alive the default is in force again.
//
// The memory that the process takes grows by up to spare. Where the environment
// has GOGC, RelaxGC does nothing; GOMEMLIMIT is respected. It sets what belongs to
// the whole process: it is for main functions, which call it once. It blocks.
func RelaxGC(ctx context.Context, spare int64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	defer debug.SetGCPercent(gcPercent)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	now := gcPercent
	for {
		metrics.Read(live)
		// Setting it stops the world for a moment: only when it matters.
		if want := percentFor(live[0].Value.Uint64(), spare); want > now+now/4 || want < now-now/4 {
			now = want
			debug.SetGCPercent(now)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// percentFor is GOGC for spare bytes of garbage beside those that are alive.
func percentFor(live uint64, spare int64) int {
	const least = 4 << 20 // Go's own least heap
	percent := gcPercent * float64(spare) / float64(max(live, least))
	return int(math.Max(gcPercent, percent))
}
