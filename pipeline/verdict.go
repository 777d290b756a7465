package pipeline

import (
	"math"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

// The reasons that a message can fail for, as told by Mqrun-Reason. Those of a
// call that did not return come from host.CallError.
const (
	reasonRejected = "rejected"
	reasonRetry    = "retry"
	reasonCode     = "code"
	reasonPublish  = "publish"
	reasonCrash    = "crash"

	// Of the server's doing; see rescuer.
	reasonMaxDeliveries = "max_deliveries"
	reasonTerminated    = "terminated"
)

const (
	minDelay = 20 * time.Millisecond // an undelayed nak is forgotten by a restart and runs hot
	maxDelay = 24 * time.Hour
)

type action uint8

const (
	actAck  action = iota // publish the outputs, then ack
	actNak                // record the attempt, then nak with the delay
	actDead               // publish the dead letter, then ack
)

// outcome is what came of one message's walk through the steps.
type outcome struct {
	code    int32  // the guest's, when failure is ""
	failure string // reason word of a call that did not return or whose emit failed
	delay   time.Duration
	delayed bool // the guest chose the delay
	outputs int
	dropped bool // some branch ended with DROP
}

// verdict is what the host does with the message.
type verdict struct {
	action    action
	reason    string // "" for actAck
	exhausted bool   // dead because no attempt is left
	filtered  bool   // acked without an output because every branch was dropped
	delay     time.Duration
}

// decide is the heart of the product: what the host does with a message after
// its attempt-th handler call ended with o. rnd is in [0, 1).
func decide(o outcome, attempt int, r config.Retry, rnd float64) verdict {
	reason := o.failure
	if reason == "" {
		switch o.code {
		case host.OK, host.Drop:
			return verdict{action: actAck, filtered: o.dropped && o.outputs == 0}
		case host.Reject:
			return verdict{action: actDead, reason: reasonRejected}
		case host.Retry:
			reason = reasonRetry
		default:
			reason = reasonCode
		}
	}
	if attempt >= r.Attempts {
		return verdict{action: actDead, reason: reason, exhausted: true}
	}
	d := backoff(attempt, r, rnd)
	if o.delayed {
		d = o.delay
	}
	return verdict{action: actNak, reason: reason, delay: min(max(d, minDelay), maxDelay)}
}

// backoff is the policy's delay after the attempt-th failure: exponential from
// initial, capped at max, then spread by the jitter to both sides.
func backoff(attempt int, r config.Retry, rnd float64) time.Duration {
	if r.Initial <= 0 {
		return 0 // times an infinite power it would be no number
	}
	d := math.Min(float64(r.Initial)*math.Pow(r.Factor, float64(attempt-1)), float64(r.Max))
	return time.Duration(d * (1 + r.Jitter*(2*rnd-1)))
}
