package pipeline

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mqrun/mqrun/config"
)

// The states of a Rollout.
const (
	RolloutTrying     = "trying"
	RolloutTaken      = "taken"
	RolloutRolledBack = "rolled back"
)

const (
	// rolloutEnough is how many messages tell something before the time is up,
	// and rolloutFew how many of them must have failed.
	rolloutEnough, rolloutFew = 20, 3
	// rolloutPatience is how many times its time a rollout waits for so many.
	rolloutPatience = 10
	rolloutListed   = 100 // messages that are named
)

// Rollout is how the new module of a plugin does beside the old one.
type Rollout struct {
	Plugin string    `json:"plugin"`
	From   string    `json:"from"` // sha256 of the old module
	To     string    `json:"to"`   // and of the new one
	State  string    `json:"state"`
	Share  float64   `json:"share"` // of the messages for the new one while it is tried
	Since  time.Time `json:"since"`
	Old    Tally     `json:"old"`
	New    Tally     `json:"new"`
	Failed []Failure `json:"failed,omitempty"` // by the new one, the first 100
}

// String is the rollout in one line.
func (r Rollout) String() string {
	return fmt.Sprintf("plugins.%s.module: %s: sha256 %.12s failed %d of %d messages, sha256 %.12s %d of %d",
		r.Plugin, r.State, r.To, r.New.Failed, r.New.Handled, r.From, r.Old.Failed, r.Old.Handled)
}

// Tally counts messages.
type Tally struct {
	Handled int `json:"handled"`
	Failed  int `json:"failed"` // retried, rejected, trapped, timed out
}

func (t Tally) ratio() float64 { return float64(t.Failed) / float64(max(t.Handled, 1)) }

// Failure is one message that a module failed.
type Failure struct {
	Pipeline string `json:"pipeline"`
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	Reason   string `json:"reason"`
}

// trial is one plugin whose new module has to prove itself.
type trial struct {
	plugin    string
	old, next *plugin
	begun     time.Time

	mu      sync.Mutex
	rules   config.Rollout
	oldDone Tally
	newDone Tally
	failed  []Failure
	decided bool
}

// beside makes a canary of the chain: a share of the messages goes through the
// new modules of its steps.
func (c *chain) beside(canary *chain, trials []*trial) *chain {
	if len(trials) == 0 {
		return c
	}
	c.canary, c.share, c.trials = canary, 1, trials
	canary.trials, canary.trying = trials, true
	for _, t := range trials {
		c.share = min(c.share, t.share())
	}
	return c
}

// pick is the chain for the message at sequence. One that comes again goes
// through what ran before: a bad module costs a message one attempt, not all.
func (c *chain) pick(sequence uint64, again bool) *chain {
	if c.canary == nil || again {
		return c
	}
	// Multiples of the golden ratio are spread evenly: the share is met soon.
	if at := sequence * 0x9e3779b97f4a7c15 >> 32; float64(at) < c.share*(1<<32) {
		return c.canary
	}
	return c
}

// told counts a verdict on a first attempt for the modules on trial, or for those
// beside them. A failure of another one's step is not theirs.
func (w *walk) told(v verdict) {
	c := w.s.chain
	if w.s.attempt > 1 {
		return
	}
	for _, t := range c.trials {
		failed := v.action != actAck
		if failed && w.step.name != t.plugin && slices.ContainsFunc(c.trials, func(o *trial) bool { return o.plugin == w.step.name }) {
			failed = false
		}
		t.count(c.trying, failed, Failure{w.pipe.name, w.s.src.stream, w.s.info.Sequence, v.reason})
	}
}

func (t *trial) share() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rules.Canary
}

func (t *trial) count(trying, failed bool, f Failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tally := &t.oldDone
	if trying {
		tally = &t.newDone
	}
	tally.Handled++
	if !failed {
		return
	}
	tally.Failed++
	if trying && len(t.failed) < rolloutListed {
		t.failed = append(t.failed, f)
	}
}

// judge decides once, "" before.
func (t *trial) judge(now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.decided {
		return ""
	}
	n, age := t.newDone, now.Sub(t.begun)
	worse := n.ratio() > t.oldDone.ratio()+t.rules.MaxFailureRatio
	var state string
	switch {
	case worse && n.Handled >= rolloutEnough && n.Failed >= rolloutFew:
		state = RolloutRolledBack
	case age < t.rules.Watch || n.Handled < rolloutEnough && age < rolloutPatience*t.rules.Watch:
		return ""
	case worse:
		state = RolloutRolledBack
	default:
		state = RolloutTaken
	}
	t.decided = true
	return state
}

func (t *trial) report(state string) Rollout {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Rollout{
		Plugin: t.plugin, From: t.old.digest, To: t.next.digest, State: state, Share: t.rules.Canary, Since: t.begun,
		Old: t.oldDone, New: t.newDone, Failed: slices.Clone(t.failed),
	}
}
