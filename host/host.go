// Package host compiles, pools and calls sandboxed WebAssembly plugins.
//
// A [Runtime] turns the bytes of a module into a [Plugin]; [Plugin.Handle]
// gives one message to one instance of it and collects what the guest emitted.
// The border between guest and host is specified in abi.go, which is also where
// the page for plugin authors comes from.
//
//	rt, err := host.New(ctx, host.Options{CacheDir: "cache"})
//	p, err := rt.Load(ctx, wasm, host.Settings{Name: "upper", File: "upper.wasm", Limits: host.DefaultLimits(), Workers: 2})
//	err = p.Handle(ctx, &host.Message{Subject: "orders.new", Data: data, To: "orders.upper"}, &res)
//
// Every plugin has a wazero runtime of its own, so that no plugin can import
// another's exports or stand in for a host module. An instance serves one call
// at a time and is thrown away after any error.
//
// Guests are metered: their code is rewritten when it is loaded (host/meter), so
// that it comes back every few dozen microseconds. There a guest is stopped when
// its time or fuel is used up or its caller has gone, gives its turn to another
// pipeline's, and lets the rest of the process go first. All guests of a Runtime
// share Options.Running turns and Options.Memory.
//
// # Caveats
//
// A trusted plugin (Settings.Trusted) is not metered. wazero's own switch stops
// it, which looks at loop heads only: such a guest that recurses without a loop
// runs past its deadline, and holds up the garbage collector while it does.
//
// The time in which a call waits for its turn is not the call's: under load it
// may end later than its deadline says.
//
// Nothing can stop wazero's compiler. A module that takes more than three minutes to
// compile does not load, and until the compiler has ended no other one does.
//
// Linear memory is mapped outside Go's heap on Unix: Go's memory limit does not
// see it. Options.Memory counts what a guest asked for, touched or not; tables
// and stacks, which are bounded for each guest, come on top.
//
// Exceptions of WebAssembly are off: wazero copies the whole stack at every try.
package host

import (
	"time"
)

// Message is what one call of a plugin gets. Handle only reads it.
type Message struct {
	Subject  string
	Stream   string
	Pipeline string
	// To is the pipeline's `to`. Emitting to exactly this subject is always
	// allowed, unless it is a denied one.
	To   string
	Data []byte
	// Header as on the wire. Nats-* and Mqrun-* (any case) are hidden from the guest.
	Header      map[string][]string
	Sequence    uint64
	Attempt     int // from 1
	MaxAttempts int
	Time        time.Time
	Pending     uint64
	Step        string
	// Last step of the pipeline: an emit without a subject goes to To, or
	// fails when there is none. Otherwise it goes to the next step.
	Last bool
	// Deny holds filters of subjects that this message's outputs may not go
	// to, whatever Settings.Publish says: the dead-letter subjects.
	Deny []string
}

// Field is one header of an output.
type Field struct{ Name, Value string }

// Output is one message that the guest emitted.
type Output struct {
	Subject string // "" = the next step, or the pipeline's `to`
	Header  []Field
	Data    []byte
}

// Result is what one call gave. It may be used again and again; Handle resets
// it first. One goroutine at a time.
type Result struct {
	Code int32 // the verdict, or whatever else the guest returned
	// Outputs are empty unless Code is OK. They are valid until Reset.
	Outputs    []Output
	Reason     string // by the guest; one line, safe in a header
	RetryAfter time.Duration
	RetrySet   bool
	// Log is the last 2 KiB of what the guest logged or printed in this call,
	// escaped, one line each. Valid until Reset.
	Log []byte
	// EmitFailed is the Mqrun-Reason word of the first emit or emit_header
	// that was refused: forbidden, limit, emit; "" when none was.
	EmitFailed string
	EmitError  string
	// Memory is what the guest has after the call, in bytes. Fuel is what it used,
	// in instructions; 0 for a plugin without limits.fuel.
	Memory, Fuel int64

	data   []byte
	fields []Field
	home   *instance // that filled it last: it is parked for this Result
}

// Reset empties r and keeps its memory.
func (r *Result) Reset() {
	clear(r.Outputs)
	clear(r.fields)
	*r = Result{Outputs: r.Outputs[:0], Log: r.Log[:0], data: r.data[:0], fields: r.fields[:0], home: r.home}
	if cap(r.data) > keepArena {
		r.data = nil
	}
}

// keepArena bounds what a Result keeps after one large output, in bytes.
const keepArena = 1 << 20
