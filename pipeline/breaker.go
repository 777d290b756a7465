package pipeline

import (
	"fmt"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

const (
	breakFirst   = time.Second // pause before the first trial
	breakMost    = 5 * time.Minute
	breakBuckets = 10 // parts of the window
)

// breaker pauses a pipeline whose plugins keep failing: not messages that they
// judge to be bad, but instances that trap, hang or run out of something. It
// knows nothing of slots and clocks; its owner keeps it from being used
// concurrently.
type breaker struct {
	cfg config.Breaker

	state   breakState
	buckets [breakBuckets]bucket
	last    string        // failure seen last
	pause   time.Duration // the current or the last one
	until   time.Time     // open until then
	closed  time.Time     // when it closed last
	trial   any           // what was let through half open; nil: nothing
}

type breakState uint8

const (
	breakClosed breakState = iota
	breakOpen              // nothing begins
	breakHalf              // one message may
)

// bucket counts the calls of one part of the window.
type bucket struct {
	at            int64 // which part of all time
	calls, failed int
}

// change is what a result did to the breaker.
type change uint8

const (
	unchanged change = iota
	opened           // from closed
	stayed           // the trial failed
	closed
)

// instanceFailed reports whether an outcome speaks against the plugin, not
// against the message.
func instanceFailed(o outcome) bool {
	switch o.failure {
	case host.ReasonTrap, host.ReasonTimeout, host.ReasonFuel, host.ReasonMemory, host.ReasonExit, host.ReasonABI:
		return true
	}
	return false
}

// admit reports whether who may begin. Half open, the first one may.
func (b *breaker) admit(who any) bool {
	switch b.state { //nolint:exhaustive // nothing else asks for anything
	case breakClosed:
		return true
	case breakHalf:
		if b.trial == nil {
			b.trial = who
			return true
		}
	}
	return false
}

// ready opens it by half once the pause is over, and reports whether a trial is
// wanted.
func (b *breaker) ready(now time.Time) bool {
	if b.state == breakOpen && !now.Before(b.until) {
		b.state = breakHalf
	}
	return b.state == breakHalf && b.trial == nil
}

// withdraw takes back an admission that came to no call.
func (b *breaker) withdraw(who any) {
	if b.trial == who {
		b.trial = nil
	}
}

// result counts how who's call ended. failure is "" for a call that returned.
// What began before it opened changes nothing any more.
func (b *breaker) result(who any, failure string, now time.Time) change {
	switch {
	case b.state == breakHalf && b.trial == who:
		b.trial = nil
		if failure == "" {
			b.state, b.closed, b.buckets = breakClosed, now, [breakBuckets]bucket{}
			return closed
		}
		b.last = failure
		b.open(now, min(2*b.pause, breakMost))
		return stayed
	case b.state != breakClosed:
		return unchanged
	}
	at := now.UnixNano() / max(1, int64(b.cfg.Window)/breakBuckets)
	k := &b.buckets[int(at%breakBuckets)]
	if k.at != at {
		*k = bucket{at: at}
	}
	k.calls++
	if failure == "" {
		return unchanged
	}
	k.failed++
	b.last = failure
	calls, failed := b.count(at)
	if calls < b.cfg.Min || float64(failed) < b.cfg.FailureRatio*float64(calls) {
		return unchanged
	}
	pause := breakFirst
	if b.pause > 0 && now.Sub(b.closed) < b.cfg.Window { // it closed for a moment only
		pause = min(2*b.pause, breakMost)
	}
	b.open(now, pause)
	return opened
}

func (b *breaker) open(now time.Time, pause time.Duration) {
	b.state, b.pause, b.until = breakOpen, pause, now.Add(pause)
}

// count sums the window that ends with the part at.
func (b *breaker) count(at int64) (calls, failed int) {
	for _, k := range b.buckets {
		if k.at > at-breakBuckets && k.at <= at {
			calls += k.calls
			failed += k.failed
		}
	}
	return calls, failed
}

// why is the state for people.
func (b *breaker) why(now time.Time) string {
	if b.state == breakHalf {
		return fmt.Sprintf("the plugins kept failing, last: %s; one message is tried", b.last)
	}
	return fmt.Sprintf("the plugins kept failing, last: %s; one message is tried in %v", b.last, max(0, b.until.Sub(now)).Round(time.Second))
}
