package host

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// call is what host functions see of the call that an instance is in. It is
// also the context that the guest runs under, so that a call allocates none:
// one channel serves an instance for its whole life, for after a deadline the
// instance is gone anyway.
type call struct {
	plugin *Plugin
	fn     string // the host function that was entered last

	msg *Message // nil while the instance starts
	res *Result

	pending      int // headers of res.fields that wait for the next emit
	staged       int64
	pendingBytes int64
	headers      []byte // what headers() gives, made at most once a call
	headersMade  bool
	names        map[string]string // subjects and header names that this instance emitted before
	log          guestLog
	kv           kvState

	turn    turn
	meter   metering
	started int64 // ns on the gate's clock; waiting for a turn moves it on
	limit   time.Duration
	looks   uint8       // host functions entered
	timer   *time.Timer // for a call that nothing else stops: not metered, or waiting
	nap     *time.Timer
	done    chan struct{}
	state   atomic.Int32

	mu      sync.Mutex
	active  bool
	watched <-chan struct{} // of the caller's context that cancel is hooked to
	unwatch func() bool
}

// States of a call.
const (
	running int32 = iota
	timedOut
	cancelled
)

type callKey struct{}

// Deadline, Done, Err and Value make a call a context.
func (c *call) Deadline() (time.Time, bool) {
	return c.gate().born.Add(time.Duration(c.started) + c.limit), true
}

// Done is closed when the call has to end.
func (c *call) Done() <-chan struct{} { return c.done }

// Err says why.
func (c *call) Err() error {
	switch c.state.Load() {
	case timedOut:
		return context.DeadlineExceeded
	case cancelled:
		return context.Canceled
	}
	return nil
}

// Value gives the call itself to host functions.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return nil
}

func (c *call) gate() *gate { return c.plugin.runtime.gate }

// enter waits for the turn to run, on behalf of a pipeline.
func (c *call) enter(ctx context.Context, pipeline string) error {
	g := c.gate()
	if c.turn.lane == nil || c.turn.lane.name != pipeline {
		c.turn.lane = g.lane(pipeline)
	}
	if !g.enter(&c.turn, ctx.Done(), c.done) {
		if err := ctx.Err(); err != nil {
			return err
		}
		return ErrClosed
	}
	return nil
}

// begin starts the clock, and hooks the call to ctx unless it already is.
func (c *call) begin(ctx context.Context, m *Message, res *Result, limit time.Duration) {
	c.msg, c.res = m, res
	c.pending, c.pendingBytes, c.staged, c.headersMade = 0, 0, 0, false
	c.log.begin(res)
	c.kv.forget()
	c.mu.Lock()
	c.active = true
	if d := ctx.Done(); d != c.watched {
		if c.unwatch != nil {
			c.unwatch()
		}
		c.watched, c.unwatch = d, nil
		if d != nil {
			c.unwatch = context.AfterFunc(ctx, func() { c.cancel(d) })
		}
	}
	c.mu.Unlock()
	if ctx.Err() != nil {
		c.stop(cancelled)
	}
	now := c.gate().now()
	c.limit, c.started, c.turn.since, c.meter.last = limit, now, now, now
	if c.plugin.settings.Trusted && !c.plugin.settings.bare {
		c.arm(limit)
	}
}

// end reports whether the call, and with it the instance, can go on.
func (c *call) end() bool {
	alive := true
	if c.plugin.settings.Trusted && !c.plugin.settings.bare {
		alive = c.timer.Stop()
		now := c.gate().now()
		c.turn.lane.charge(now, time.Duration(now-c.meter.last))
	}
	if c.turn.state.Load() == held {
		c.gate().pause(&c.turn)
	}
	c.mu.Lock()
	c.active = false
	c.mu.Unlock()
	c.log.end(c)
	c.msg, c.res = nil, nil
	return alive && c.state.Load() == running
}

// arm makes done close after d.
func (c *call) arm(d time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.expire)
	} else {
		c.timer.Reset(d)
	}
}

func (c *call) expire() { c.stop(timedOut) }

// cancel comes from a caller's context; one of an earlier call counts no more.
func (c *call) cancel(d <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active && c.watched == d {
		c.stop(cancelled)
	}
}

func (c *call) kill() { c.stop(cancelled) }

func (c *call) stop(why int32) {
	if c.state.CompareAndSwap(running, why) {
		close(c.done)
	}
}

// release lets go of the caller's context.
func (c *call) release() {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Lock()
	if c.unwatch != nil {
		c.unwatch()
	}
	c.mu.Unlock()
}

// check ends the call when its time is over. Every host function starts with
// it; it looks at the clock at every eighth, for the meter looks too.
func (c *call) check() {
	if why := c.state.Load(); why != running {
		panic(c.stopped(why))
	}
	if c.looks++; c.looks%8 == 0 {
		c.look()
	}
}

// look is check with a look at the clock. What moves much or waits does so often.
func (c *call) look() {
	now := c.gate().now()
	c.stopAt(now)
	if used := time.Duration(now - c.meter.last); used > pace {
		c.breathe(now, used)
	}
}

// left is the time until the deadline.
func (c *call) left() time.Duration {
	return c.limit - time.Duration(c.gate().now()-c.started)
}

func (c *call) stopped(why int32) *fault {
	if why == timedOut {
		return &fault{reason: ReasonTimeout, where: true, text: fmt.Sprintf("timed out after %v", c.limit)}
	}
	return &fault{reason: reasonCancelled, text: "was cancelled"}
}

// reasonCancelled never leaves the package: Handle returns the context's error.
const reasonCancelled = "cancelled"

// wait runs do while others have the turn. do has to end when the call does,
// which it does not survive.
func (c *call) wait(do func()) {
	c.stopAt(c.gate().now())
	if !c.plugin.settings.Trusted {
		c.arm(c.left())
	}
	c.gate().leave(&c.turn)
	do()
	if !c.plugin.settings.Trusted {
		c.timer.Stop()
	}
	c.back()
}

// back waits for the turn that was given up.
func (c *call) back() {
	asked := c.gate().now()
	if !c.gate().enter(&c.turn, c.done, nil) {
		panic(c.stopped(c.state.Load()))
	}
	c.resume(asked)
	c.stopAt(c.meter.last)
}

// resume takes the time in which the call waited for its turn out of its own.
func (c *call) resume(asked int64) {
	now := c.gate().now()
	c.turn.since, c.meter.last = now, now
	if !c.plugin.settings.Trusted { // whose timer runs on
		c.started += now - asked
	}
}

// shortNap is what is not worth giving up a turn for.
const shortNap = 20 * time.Microsecond

// sleep waits for d, or for the end of the call.
func (c *call) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	g := c.gate()
	began := g.now()
	if d <= shortNap { // it is over before another thread could wake this one
		for time.Duration(g.now()-began) < d {
			runtime.Gosched()
		}
		c.look()
		return
	}
	c.stopAt(began)
	if c.nap == nil {
		c.nap = time.NewTimer(0)
	}
	g.leave(&c.turn)
	c.nap.Reset(min(d, c.left()))
	select {
	case <-c.nap.C:
	case <-c.done:
	}
	c.nap.Stop()
	c.back()
}

// guard turns a panic of ours into a fault; wazero carries faults to Handle.
func (c *call) guard() {
	switch r := recover().(type) {
	case nil:
	case *fault:
		panic(r)
	default:
		panic(&fault{reason: ReasonABI, text: fmt.Sprintf("%s: mqrun itself failed: %v; please report it", c.fn, r), stack: string(debug.Stack())})
	}
}

// view gives the guest's memory at ptr. It is the guest's: whoever keeps it
// past the host function copies it. Length 0 is never looked at, for languages
// give empty slices any pointer.
func (c *call) view(mem api.Memory, ptr, n uint32) []byte {
	if n == 0 {
		return nil
	}
	b, ok := mem.Read(ptr, n)
	if !ok {
		panic(&fault{reason: ReasonABI, text: fmt.Sprintf("%s: pointer %d + %d is outside the guest's memory (%d bytes)", c.fn, ptr, n, mem.Size())})
	}
	return b
}

// give follows the read rule: copies min(len, room) and returns the full length.
func (c *call) give(mem api.Memory, src []byte, ptr, room uint32) uint64 {
	dst := c.view(mem, ptr, uint32(min(int64(len(src)), int64(room))))
	for at := 0; at < len(dst); at += Piece {
		if at > 0 {
			c.look()
		}
		copy(dst[at:min(at+Piece, len(dst))], src[at:])
	}
	return uint64(uint32(len(src)))
}

// giveString is give without making a slice of the string.
func (c *call) giveString(mem api.Memory, src string, ptr, room uint32) uint64 {
	copy(c.view(mem, ptr, uint32(min(int64(len(src)), int64(room)))), src)
	return uint64(uint32(len(src)))
}

// keep appends a copy of the guest's bytes to the result's memory.
func (c *call) keep(src []byte) []byte {
	start := len(c.res.data)
	c.res.data = slices.Grow(c.res.data, len(src))
	for at := 0; at < len(src); at += Piece {
		if at > 0 {
			c.look()
		}
		c.res.data = append(c.res.data, src[at:min(at+Piece, len(src))]...)
	}
	return c.res.data[start:len(c.res.data):len(c.res.data)]
}

// intern gives the string for b and remembers it: handlers emit the same few
// subjects and header names for ever.
func (c *call) intern(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	if c.names == nil || len(c.names) >= 256 {
		c.names = make(map[string]string, 16)
	}
	s := string(b)
	if len(s) <= 256 {
		c.names[s] = s
	}
	return s
}
