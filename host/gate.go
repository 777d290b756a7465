package host

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// gate is the run gate: at most max guests run at once, over all plugins of a
// Runtime. Whoever comes too late waits in the line of its pipeline, and the
// next turn goes to the pipeline that used the least CPU of late. So a pipeline
// that floods the host waits for itself, and one that runs now and then does
// not wait for it.
//
// A guest that runs long is asked to yield at its ticks. The broker needs no
// turn: at a tick every other goroutine of the process may go first.
//
// An instance keeps its turn from call to call until somebody wants it, so that
// calls which get in nobody's way touch nothing that others write to.
type gate struct {
	born    time.Time // its clock begins here
	max     int
	waiting atomic.Int64 // turns in a line; raised before looking for a kept turn

	mu      sync.Mutex
	holders []*turn // that run or are kept
	lanes   map[string]*lane
	lines   []*lane // those with a line
}

const (
	// slice is what a guest may run while one waits whose pipeline is as busy.
	slice = 10 * time.Millisecond
	// recent is how long CPU counts against a pipeline.
	recent = 100 * time.Millisecond
)

// lane is one pipeline's place at the gate.
type lane struct {
	name string
	line []*turn // first in front; gate.mu

	mu   sync.Mutex
	used float64 // ns of CPU, faded
	at   int64   // ns on the gate's clock at which used was true
}

// turn is one guest's right to run. It belongs to an instance and is used again
// and again.
type turn struct {
	lane  *lane
	since int64 // ns on the gate's clock: when it was got
	ready chan struct{}
	state atomic.Int32
}

// States of a turn.
const (
	away int32 = iota // with somebody else
	held              // its guest runs
	kept              // its guest does not run, and who wants it may have it
)

func newGate(n int) *gate {
	return &gate{born: time.Now(), max: n, lanes: map[string]*lane{}}
}

// now in ns.
func (g *gate) now() int64 { return int64(time.Since(g.born)) }

// lane gives the place of a pipeline.
func (g *gate) lane(name string) *lane {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lanes[name]
	if l == nil {
		l = &lane{name: name}
		g.lanes[name] = l
	}
	return l
}

// charge adds CPU that was used until now.
func (l *lane) charge(now int64, d time.Duration) {
	l.mu.Lock()
	l.fade(now)
	l.used += float64(d)
	l.mu.Unlock()
}

func (l *lane) fade(now int64) {
	if now > l.at {
		l.used *= math.Exp(-float64(now-l.at) / float64(recent))
		l.at = now
	}
}

func (l *lane) usage(now int64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fade(now)
	return l.used
}

// contended: somebody waits.
func (g *gate) contended() bool { return g.waiting.Load() > 0 }

// enter waits for a turn, or for one of two ends. It reports whether it has one.
func (g *gate) enter(t *turn, end, other <-chan struct{}) bool {
	if t.state.CompareAndSwap(kept, held) {
		return true
	}
	g.mu.Lock()
	g.queue(t)
	g.handOut()
	if t.state.Load() == held {
		<-t.ready
		g.mu.Unlock()
		return true
	}
	g.mu.Unlock()
	return g.wait(t, end, other)
}

// queue puts t at the end of its line; g.mu is held.
func (g *gate) queue(t *turn) {
	if t.ready == nil {
		t.ready = make(chan struct{}, 1)
	}
	if len(t.lane.line) == 0 {
		g.lines = append(g.lines, t.lane)
	}
	t.lane.line = append(t.lane.line, t)
	g.waiting.Add(1)
}

// unqueue takes t out of its line; g.mu is held.
func (g *gate) unqueue(t *turn) bool {
	i := slices.Index(t.lane.line, t)
	if i < 0 {
		return false
	}
	t.lane.line = slices.Delete(t.lane.line, i, i+1)
	if len(t.lane.line) == 0 {
		i := slices.Index(g.lines, t.lane)
		g.lines = slices.Delete(g.lines, i, i+1)
	}
	g.waiting.Add(-1)
	return true
}

func (g *gate) wait(t *turn, end, other <-chan struct{}) bool {
	select {
	case <-t.ready:
		return true
	case <-end:
	case <-other:
	}
	g.mu.Lock()
	left := g.unqueue(t)
	g.mu.Unlock()
	if !left { // the turn came at the same moment
		<-t.ready
		g.leave(t)
	}
	return false
}

// pause keeps the turn for the instance's next call, unless somebody waits.
func (g *gate) pause(t *turn) {
	t.state.Store(kept)
	if g.contended() {
		g.leave(t)
	}
}

// leave gives the turn back, if there is one.
func (g *gate) leave(t *turn) {
	g.mu.Lock()
	if t.state.Swap(away) != away {
		g.drop(t)
		g.handOut()
	}
	g.mu.Unlock()
}

// drop strikes t off the holders; g.mu is held.
func (g *gate) drop(t *turn) {
	i := slices.Index(g.holders, t)
	g.holders = slices.Delete(g.holders, i, i+1)
}

// handOut gives turns to those who wait, as long as there are any; g.mu is held.
func (g *gate) handOut() {
	for len(g.lines) > 0 {
		if len(g.holders) >= g.max && !g.reclaim() {
			return
		}
		g.pass(g.next(g.now()).line[0])
	}
}

// reclaim takes back one turn that is only kept; g.mu is held.
func (g *gate) reclaim() bool {
	for _, h := range g.holders {
		if h.state.CompareAndSwap(kept, away) {
			g.drop(h)
			return true
		}
	}
	return false
}

// pass makes t a holder; g.mu is held.
func (g *gate) pass(t *turn) {
	g.unqueue(t)
	g.holders = append(g.holders, t)
	t.state.Store(held)
	t.ready <- struct{}{}
}

// next is the lane with a line that used the least; g.mu is held.
func (g *gate) next(now int64) *lane {
	best := g.lines[0]
	if len(g.lines) == 1 {
		return best
	}
	least := best.usage(now)
	for _, l := range g.lines[1:] {
		if u := l.usage(now); u < least {
			best, least = l, u
		}
	}
	return best
}

// yield gives t's turn to one who waits and is due, and waits for another. It
// reports false when end came first: t has no turn then.
func (g *gate) yield(t *turn, now int64, end <-chan struct{}) bool {
	g.mu.Lock()
	if len(g.lines) == 0 {
		g.mu.Unlock()
		return true
	}
	l := g.next(now)
	ahead := 0.0
	if l != t.lane {
		ahead = t.lane.usage(now) - l.usage(now)
	}
	if ahead < float64(slice) && (ahead < 0 || now-t.since < int64(slice)) {
		g.mu.Unlock()
		return true
	}
	t.state.Store(away)
	g.drop(t)
	g.queue(t)
	g.pass(l.line[0])
	g.mu.Unlock()
	return g.wait(t, end, nil)
}
