package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hostile is a guest that means harm, and what becomes of it.
type hostile struct {
	name   string // of testdata/hostile, or free with wasm or from
	wasm   func() []byte
	from   string // another guest of testdata
	data   string
	limits Limits
	load   string // how the error of Load goes on after the plugin's name; "" = it loads
	reason string // of the CallError; "" = it returns
	text   string // how its text goes on after the message
	code   int32
	emit   string // Result.EmitFailed
	alloc  uint64 // most bytes of Go's heap that one call takes in all; 0 = does not tell
}

// hostiles is every way to do harm that we know of. Pointers and lengths, subjects
// and headers, imports of other types, and many traps in a row follow below.
func hostiles() []hostile {
	const timeOut = "timed out after 200ms"
	some := Limits{Timeout: 200 * time.Millisecond}
	return []hostile{
		{name: "loop", limits: some, reason: ReasonTimeout, text: timeOut + " (in spin)"},
		{name: "fork", limits: some, reason: ReasonTimeout, text: timeOut + " (in fork)"},
		{name: "deep", reason: ReasonTrap, text: "trapped: stack overflow (in deep)", alloc: 64 << 20},
		{name: "bomb", reason: ReasonMemory, text: "ran out of memory (limit 64 MiB): unreachable in fill"},
		{name: "grows", limits: some, reason: ReasonTimeout, text: timeOut + " (in grows)"},
		{name: "trap", reason: ReasonTrap, text: "trapped: unreachable in boom"},
		{name: "sleep", limits: some, reason: ReasonTimeout, text: timeOut + " (in sleep)"},
		{name: "naps", limits: some, reason: ReasonTimeout, text: timeOut + " (in naps)"},
		{name: "logs", limits: some, reason: ReasonTimeout, text: timeOut + " (in logs)"},
		{name: "emits", limits: some, reason: ReasonTimeout, text: timeOut + " (in emits)"},
		{name: "bytes", code: OK, emit: ReasonLimit, alloc: 64 << 20},
		{name: "headers", limits: some, reason: ReasonTimeout, text: timeOut + " (in headers)"},
		{name: "exit(0) in a handler", from: "probe", data: exits(0), reason: ReasonExit, text: "exited with code 0"},
		{name: "exit(1) in a handler", from: "probe", data: exits(1), reason: ReasonExit, text: "exited with code 1"},
		{name: "exit-init", load: "exited with code 0"},
		{name: "start-loop", limits: Limits{Init: 200 * time.Millisecond}, load: timeOut + " (in start) while starting (plugins.hostile.limits.init)"},
		{name: "bulk", limits: some, reason: ReasonTimeout, text: timeOut + " (in bulk)"},
		{name: "tables", limits: some, reason: ReasonTimeout, text: timeOut + " (in tables)"},
		{name: "table-ops", limits: some, reason: ReasonTimeout, text: timeOut + " (in tables)"},
		{name: "table-huge", load: "needs a table of at least 10000000 elements; the limit is 65536 (plugins.hostile.limits.table)"},
		{name: "wait", load: "cannot be metered: it has a shared memory: threads do not run here"},
		{name: "random", limits: some, reason: ReasonTimeout, text: timeOut + " (in flood)"},
		{name: "writes", limits: some, reason: ReasonTimeout, text: timeOut + " (in flood)"},
		{name: "chase", limits: some, reason: ReasonTimeout, text: timeOut + " (in chase)"},
		{name: "divide", limits: some, reason: ReasonTimeout, text: timeOut + " (in divide)"},
		{name: "200,000 operations in one line", wasm: func() []byte { return straightLine(200_000) }, limits: some, reason: ReasonTimeout, text: timeOut},
		{name: "a thousand tables", wasm: func() []byte { return withSection(4, 1000, 0x70, 0, 0x80, 0x80, 4) }, load: "cannot be metered: it has more than 64 tables"},
		{name: "a million globals", wasm: func() []byte { return withSection(6, 1_000_000, 0x7f, 0, opcConst, 0, opcEnd) }, load: "cannot be metered: it has 1000000 globals; 100000 are the most"},
		{name: "a huge data segment", wasm: func() []byte { return hugeData(33<<20, 1) }, load: "has 33.0 MiB; the limit is 32 MiB (plugins.hostile.limits.module)"},
		{name: "data beyond the memory", wasm: func() []byte { return hugeData(1<<20, 1) }, load: "trapped"},
		{name: "a million functions", wasm: func() []byte { return manyFunctions(1_000_000) }, load: "cannot be metered: it has 1000001 functions; 100000 are the most"},
		{name: "a million targets", wasm: func() []byte { return manyTargets(1_000_000) }, load: "cannot be metered: it has a br_table of 1000000 targets; 65520 are the most"},
		{name: "a million blocks in one another", wasm: func() []byte { return deepBlocks(1_000_000) }, load: "cannot be metered: it nests more than 16384 blocks"},
		{name: "too many blocks to compile", wasm: func() []byte { return manyLoops(20_000, 1000) }, load: "cannot be metered: it takes too long to compile: this function has"},
		{name: "a compile bomb", wasm: func() []byte { return manyLoops(1000, 500) }, load: "takes more than 100ms to compile: its functions are too large or too tangled; split them"},
	}
}

func exits(code uint32) string { return string((&script{}).do(opProcExit, code).bytes()) }

// healthy calls an echo until it is told to stop. Any failure is the test's.
type healthy struct {
	calls atomic.Int64
	stop  context.CancelFunc
	done  chan struct{}
}

func keepEchoing(t *testing.T, p *Plugin) *healthy {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	h := &healthy{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		m, res := message("healthy"), &Result{}
		m.Pipeline = "healthy"
		for ctx.Err() == nil {
			err := p.Handle(t.Context(), m, res)
			if err != nil || res.Code != OK || len(res.Outputs) != 1 || string(res.Outputs[0].Data) != "healthy" {
				t.Errorf("the healthy plugin: %v %+v", err, res)
				return
			}
			h.calls.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	return h
}

func TestHostileGuests(t *testing.T) {
	for _, h := range hostiles() {
		t.Run(h.name, func(t *testing.T) {
			if testing.Short() && h.wasm != nil {
				t.Skip("compiles much")
			}
			r := open(t, Options{Memory: 256 << 20})
			if strings.Contains(h.load, "to compile") {
				r.compileLimit = 100 * time.Millisecond
				defer func() { r.compile <- struct{}{} }() // the compiler has to end before the test does
			}
			echo, err := r.Load(t.Context(), guest(t, "echo"), Settings{Name: "healthy"})
			if err != nil {
				t.Fatal(err)
			}
			before := r.budget.used.Load()
			beside := keepEchoing(t, echo)
			h.run(t, r)
			calls := beside.calls.Load()
			for beside.calls.Load() == calls { // it goes on
				time.Sleep(time.Millisecond)
			}
			beside.stop()
			<-beside.done
			if n := r.budget.used.Load(); n > before+pageSize {
				t.Errorf("guests hold %d bytes; it were %d", n, before)
			}
			if n := r.gate.running(); n != 0 {
				t.Errorf("%d turns are lost", n)
			}
		})
	}
}

func (h *hostile) module(t *testing.T) []byte {
	if h.wasm != nil {
		return h.wasm()
	}
	return guest(t, cmp.Or(h.from, "hostile/"+h.name))
}

func (h *hostile) run(t *testing.T, r *Runtime) {
	p, err := r.Load(t.Context(), h.module(t), Settings{Name: "hostile", File: "hostile.wasm", Workers: 1, Limits: h.limits})
	if h.load != "" {
		if err == nil || !strings.Contains(err.Error(), h.load) || strings.Contains(err.Error(), "\n") {
			t.Errorf("load:\n got %v\nwant %s", err, h.load)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.call(t, p)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func (h *hostile) call(t *testing.T, p *Plugin) {
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	m, res := message(h.data), &Result{}
	m.Pipeline = "hostile"
	err := p.Handle(t.Context(), m, res)
	runtime.ReadMemStats(&m1)
	var ce *CallError
	switch {
	case h.reason == "":
		if err != nil || res.Code != h.code || res.EmitFailed != h.emit {
			t.Errorf("got %v, %+v", err, res)
		}
	case !errors.As(err, &ce):
		t.Errorf("got %v, want a CallError", err)
	case ce.Reason != h.reason || !strings.HasPrefix(ce.Text, "hostile: message 17 of INGEST "+h.text):
		t.Errorf("got %s: %s\n%s", ce.Reason, ce.Text, ce.Trace)
	case len(res.Outputs) != 0:
		t.Errorf("%d outputs of a call that failed", len(res.Outputs))
	}
	if n := m1.TotalAlloc - m0.TotalAlloc; h.alloc > 0 && n > h.alloc {
		t.Errorf("the call took %s of the heap; %s is the most", bytesText(int64(n)), bytesText(int64(h.alloc)))
	}
	if len(res.Log) > MaxLogTail {
		t.Errorf("%d bytes of log", len(res.Log))
	}
}

// Fifteen traps broke a C guest in wazero: its shadow stack leaks. Here every one is the last of its instance.
func TestManyTrapsInARow(t *testing.T) {
	p := load(t, "hostile/trap", Settings{Name: "trap", Workers: 1})
	for range 20 {
		if ce := fail(t, p, message("")); ce.Reason != ReasonTrap || !strings.Contains(ce.Text, "unreachable in boom") {
			t.Fatal(ce)
		}
	}
	if res := run(t, p, message("fine")); len(res.Outputs) != 1 || string(res.Outputs[0].Data) != "fine" {
		t.Errorf("%+v", res)
	}
}

// Every pointer and length of every host function at every edge: a verdict or
// an end of the call, never anything of ours.
func TestEdgesOfEveryHostFunction(t *testing.T) {
	p := load(t, "probe", Settings{Workers: 1, Limits: Limits{Timeout: 50 * time.Millisecond, Memory: 1 << 20}, Publish: []string{">"}})
	edges := []uint32{0, 1, 4, probeMemory - 1, probeMemory, probeMemory + 1, 1 << 31, 1<<31 - 1, 1<<32 - 1}
	for op := uint32(opInput); op <= opClockTime; op++ {
		for _, a := range edges {
			for _, b := range edges {
				m := (&script{}).do(op, a, b, b, a, a).message()
				m.Header = map[string][]string{"A": {"1"}}
				err := p.Handle(t.Context(), m, &Result{})
				var ce *CallError
				switch {
				case err == nil:
				case !errors.As(err, &ce):
					t.Fatalf("operation %d with %d and %d: %v", op, a, b, err)
				case strings.Contains(ce.Text, "mqrun itself"):
					t.Fatalf("operation %d with %d and %d: %s\n%s", op, a, b, ce.Text, ce.Trace)
				}
			}
		}
	}
}

func TestSubjectsAndHeadersThatAreNoGuests(t *testing.T) {
	p := load(t, "probe", Settings{Publish: []string{">"}})
	for subject, want := range map[string]int32{
		"orders.*": ErrnoInvalid, "orders.>": ErrnoInvalid, "a b": ErrnoInvalid, "a\r\nPUB x 0": ErrnoInvalid, "a..b": ErrnoInvalid, ".a": ErrnoInvalid,
		"$JS.API.STREAM.DELETE.X": ErrnoNotAllowed, "$SYS.x": ErrnoNotAllowed, "$KV.b.k": ErrnoNotAllowed, "_INBOX.x": ErrnoNotAllowed, "mqrun.X.redo.p": ErrnoNotAllowed,
		"": ErrnoInvalid,
	} {
		m := (&script{}).emit(subject, "x").message()
		m.To = ""
		if res := run(t, p, m); res.Code != want || res.EmitFailed == "" {
			t.Errorf("emit to %q: %d, want %d", subject, res.Code, want)
		}
	}
	for _, f := range []Field{{"A", "1\r\nNats-Msg-Id: 2"}, {"A\r\nB", "1"}, {"", "1"}, {"A:", "1"}, {"nAtS-rollup", "all"}, {"MQRUN-REASON", "x"}} {
		if res := run(t, p, (&script{}).emitHeader(f.Name, f.Value).message()); res.Code >= 0 {
			t.Errorf("header %q: %q: %d", f.Name, f.Value, res.Code)
		}
	}
}

func TestEveryImportWithWrongTypes(t *testing.T) {
	for module, fs := range map[string][]Func{ABIv1: Imports(), wasiModule: signatures(wasiFuncs()), envModule: signatures(envFuncs())} {
		for _, f := range fs {
			_, err := Inspect("x.wasm", wrongImport(module, f.Name))
			if want := fmt.Sprintf("x.wasm imports %q from %q as (i64, i64, i64, i64, i64, i64, i64, i64, i64) -> (); expected %s", f.Name, module, f.Signature()); err == nil || err.Error() != want {
				t.Errorf("\n got %v\nwant %s", err, want)
			}
		}
	}
}
