package mqrun

import (
	"errors"
	"math"
	"time"
)

// Verdict is what a handler's error means to the host; [Outcome] carries it.
type Verdict int32

// The verdicts and their numbers in the plugin ABI.
const (
	VerdictOK     Verdict = 0 // publish the outputs, then ack
	VerdictRetry  Verdict = 1 // deliver again later; a dead letter after the last attempt
	VerdictReject Verdict = 2 // dead letter now
	VerdictDrop   Verdict = 3 // ack, publish nothing
)

// String returns the verdict's name in the documentation: OK, RETRY, REJECT, DROP.
func (v Verdict) String() string {
	switch v {
	case VerdictOK:
		return "OK"
	case VerdictRetry:
		return "RETRY"
	case VerdictReject:
		return "REJECT"
	case VerdictDrop:
		return "DROP"
	}
	return "unknown verdict"
}

// verdictError never changes once made, so that a plugin may keep one and
// return it for many messages without allocating.
type verdictError struct {
	verdict Verdict
	reason  string
	delay   time.Duration
	delayed bool
}

func (e *verdictError) Error() string { return e.reason }

// Drop ends the message without output and without complaint: it is acked and
// counted as filtered.
var Drop error = &verdictError{verdict: VerdictDrop, reason: "dropped"}

// Retry returns an error that asks for the message again, after the delay of
// the pipeline's retry policy. The reason is kept at most 1 KiB long.
func Retry(reason string) error {
	return &verdictError{verdict: VerdictRetry, reason: reason}
}

// RetryAfter is [Retry] with a delay of the plugin's own, which wins over the
// pipeline's policy. It is rounded up to milliseconds; the host caps it at 24 hours.
func RetryAfter(delay time.Duration, reason string) error {
	return &verdictError{verdict: VerdictRetry, reason: reason, delay: delay, delayed: true}
}

// Reject returns an error that sends the message to the dead letters at once:
// for an input that no later attempt can make right.
func Reject(reason string) error {
	return &verdictError{verdict: VerdictReject, reason: reason}
}

// settle tells the host the reason and delay of err and returns its verdict. A
// wrapped verdict counts, and the whole chain's text is the reason.
func settle(err error) Verdict {
	if err == nil {
		return VerdictOK
	}
	v := verdictOf(err)
	if v == nil {
		abiReason(err.Error())
		return VerdictRetry
	}
	if v.verdict == VerdictDrop {
		return VerdictDrop
	}
	if v.delayed {
		abiRetryAfter(milliseconds(v.delay))
	}
	abiReason(err.Error())
	return v.verdict
}

func verdictOf(err error) *verdictError {
	//nolint:errorlint // errors.As makes its target escape; most verdicts are not wrapped
	if v, ok := err.(*verdictError); ok {
		return v
	}
	var v *verdictError
	errors.As(err, &v)
	return v
}

func milliseconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	ms := (d-1)/time.Millisecond + 1
	return uint32(min(ms, math.MaxUint32))
}
