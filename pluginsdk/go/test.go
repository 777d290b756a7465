//go:build !wasip1

package mqrun

import (
	"sync"
	"time"
)

// Input is the message that [Test] hands to a handler. The zero value is an
// empty message at its first attempt.
type Input struct {
	Data     []byte
	Header   map[string][]string // Nats-* and Mqrun-* are hidden from the handler, as the host does
	Subject  string
	Stream   string
	Pipeline string
	Plugin   string
	Sequence uint64
	Attempt  int // 0 is the first, 1
	Attempts int // 0 is the default, 12
	Time     time.Time
	Pending  uint64
	Config   map[string]string // the plugin's `config`; Init runs with it first when it is registered

	// Publish is the plugin's allow.publish together with the pipeline's `to`:
	// subjects or filters. Nil allows every subject but the reserved ones.
	Publish []string
	// NoTo says that this is the last step of a pipeline without `to`.
	NoTo bool
}

// Outcome is what the host would know after the call.
type Outcome struct {
	Verdict Verdict
	Outputs []Output      // nil unless Verdict is VerdictOK
	Reason  string        // as the host keeps it: one line, at most 1 KiB
	Delay   time.Duration // asked for by RetryAfter
	Delayed bool          // whether RetryAfter asked for one
	Log     []LogLine
}

// Output is one emitted message. Subject is "" for the next step or the
// pipeline's `to`.
type Output struct {
	Subject string
	Header  []Field
	Data    []byte
}

// Field is one header value.
type Field struct{ Name, Value string }

// LogLine is one call of [Log].
type LogLine struct {
	Level Level
	Text  string
}

// one lets one Test run at a time, since a real instance handles one message
// at a time too and plugins keep state in variables.
var one sync.Mutex

// Test calls the handler with one message, natively and by the host's rules,
// and returns what the host would do next. The function given to [Init] runs
// before it, as in a fresh instance; its error is the outcome's reason, with
// VerdictRetry. A handler's panic goes through to the test.
//
// It is not in builds for WebAssembly. Tests may run in parallel; their calls
// take turns. A handler must not call Test.
func Test(handle func(*Message) error, in Input) Outcome {
	one.Lock()
	defer one.Unlock()
	h := newNativeHost(in)
	current.Store(h)
	defer current.Store(nil)
	p := plugin{handle: handle, init: guest.init}
	if p.start() != 0 {
		return h.outcome(VerdictRetry)
	}
	return h.outcome(Verdict(p.call(len(in.Data))))
}
