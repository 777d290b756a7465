package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/mqrun/mqrun/host/meter"
)

// instance is one live copy of a module. One goroutine at a time owns it.
type instance struct {
	plugin  *Plugin
	module  api.Module
	memory  api.Memory
	handler api.Function
	call    *call
	arena   *arena
	stack   [1]uint64 // parameter and result of handler

	calls   int
	started uint32 // bytes of memory after starting
	out     int    // place among the pool's instances that are out
	parked  atomic.Bool
	dead    bool
}

// instantiate makes an instance and starts it, all within limits.init and a turn
// of the pipeline's.
func (p *Plugin) instantiate(ctx context.Context, pipeline string) (*instance, error) {
	in := &instance{plugin: p, arena: &arena{budget: &p.runtime.budget}, call: &call{plugin: p, done: make(chan struct{})}}
	if need := int64(p.facts.MemoryMin) * pageSize; !in.arena.hold(need) {
		return nil, p.noRoom(need)
	}
	if err := in.call.enter(ctx, pipeline); err != nil {
		in.close()
		return nil, err
	}
	var scratch Result
	in.call.begin(ctx, nil, &scratch, p.settings.Limits.Init)
	err := in.start()
	err = in.failure(ctx, nil, err)
	if alive := in.call.end(); err == nil && !alive {
		err = in.failure(ctx, nil, sys.NewExitError(sys.ExitCodeDeadlineExceeded))
	}
	if err != nil {
		in.close()
		return nil, err
	}
	in.started = in.memory.Size()
	return in, nil
}

// noRoom is the failure of an instance for which host.memory has no room.
func (p *Plugin) noRoom(need int64) error {
	return &CallError{Reason: ReasonMemory, noRoom: true, Text: fmt.Sprintf("%s: needs %s of memory, and %s", p.settings.Name, bytesText(need), p.runtime.budget.text())}
}

func (in *instance) start() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &fault{reason: ReasonABI, text: fmt.Sprintf("does not start: %v", r), stack: string(debug.Stack())}
		}
	}()
	p, c := in.plugin, in.call
	cfg := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(rand.Reader)
	in.module, err = p.engine.runtime.InstantiateModule(experimental.WithMemoryAllocator(c, in.arena), p.engine.compiled, cfg)
	if err != nil {
		return err
	}
	in.memory = in.module.Memory()
	in.handler = in.module.ExportedFunction(ExportHandle)
	if p.settings.Limits.Fuel > 0 && !p.settings.Trusted {
		c.meter.budget = in.module.ExportedGlobal(meter.ExportBudget).(api.MutableGlobal)
	}
	begin := ExportInitialize
	if p.settings.Start != "" {
		begin = p.settings.Start
	}
	if f := in.module.ExportedFunction(begin); f != nil {
		c.meter.stack = stackOf(f)
		if err := f.CallWithStack(c, nil); err != nil && !(begin == p.settings.Start && exitedZero(err)) {
			return err
		}
	}
	if f := in.module.ExportedFunction(ExportInit); f != nil {
		c.meter.stack = stackOf(f)
		if err := f.CallWithStack(c, in.stack[:]); err != nil {
			return err
		}
		if code := int32(in.stack[0]); code != 0 {
			text := fmt.Sprintf("%s returned %d", ExportInit, code)
			if c.res.Reason != "" {
				text += ": " + c.res.Reason
			}
			return &fault{reason: ReasonABI, text: text}
		}
	}
	c.meter.stack = stackOf(in.handler)
	return nil
}

// exitedZero: a main that returns may still end in proc_exit(0).
func exitedZero(err error) bool {
	var f *fault
	return errors.As(err, &f) && f.reason == ReasonExit && f.text == exitText(0)
}

// handle calls the guest once. After any error the instance is dead.
func (in *instance) handle(ctx context.Context, m *Message, res *Result) (err error) {
	c := in.call
	if err := c.enter(ctx, m.Pipeline); err != nil {
		return err
	}
	c.begin(ctx, m, res, in.plugin.settings.Limits.Timeout)
	c.meter.refuel(in.plugin.settings.Limits.Fuel)
	defer func() {
		if r := recover(); r != nil {
			err = in.failure(ctx, m, &fault{reason: ReasonABI, text: fmt.Sprintf("mqrun itself failed: %v; please report it", r), stack: string(debug.Stack())})
		}
		if !c.end() {
			in.dead = true
		}
	}()
	in.calls++
	in.stack[0] = uint64(uint32(len(m.Data)))
	if err := in.handler.CallWithStack(c, in.stack[:]); err != nil {
		return in.failure(ctx, m, err)
	}
	res.Code = int32(uint32(in.stack[0]))
	res.Memory, res.Fuel = int64(in.memory.Size()), c.meter.used(in.plugin.settings.Limits.Fuel)
	if res.Code != OK {
		res.discardOutputs()
	}
	return nil
}

// failure turns an error of wazero's into what Handle returns, and marks the instance as dead.
func (in *instance) failure(ctx context.Context, m *Message, err error) error {
	if err == nil {
		return nil
	}
	in.dead = true
	c := in.call
	var f *fault
	var exit *sys.ExitError
	text, trace := frames(err)
	switch {
	case errors.As(err, &f):
	case errors.As(err, &exit): // wazero's switch
		f = c.stopped(c.state.Load())
	}
	if f == nil {
		f = in.trapped(text, trace)
	}
	if f.reason == reasonCancelled {
		if err := ctx.Err(); err != nil {
			return err
		}
		return ErrClosed
	}
	e := &CallError{Reason: f.reason, Trace: trace, Guest: f.guest}
	if f.stack != "" {
		e.Trace += "\n\n" + f.stack
	}
	if e.Guest == "" {
		e.Guest = c.log.panicText()
	}
	e.Text = prefix(in.plugin.settings.Name, m) + join(m, f.reason) + f.text
	if f.where && place(trace) != "" {
		e.Text += fmt.Sprintf(" (in %s)", place(trace))
	}
	if f.reason == ReasonTimeout && m == nil {
		e.Text += fmt.Sprintf(" while starting (plugins.%s.limits.init)", in.plugin.settings.Name)
	}
	if f.reason == ReasonTrap || f.reason == ReasonMemory || f.reason == ReasonExit {
		if said := panicLine(e.Guest); said != "" {
			e.Text += fmt.Sprintf("; guest said: %q", said)
		}
	}
	return e
}

// join stands between "orders: message 17" and what happened: a host function's
// name reads as a list, everything else as a sentence.
func join(m *Message, reason string) string {
	if m != nil && reason == ReasonABI {
		return ": "
	}
	return " "
}

// trapped describes a trap, or a failed grow that ended in one.
func (in *instance) trapped(text, trace string) *fault {
	stderr := in.call.log.panicText()
	where := place(trace)
	if machinery(where) || where == "" {
		if p := goPlace(stderr); p != "" {
			where = p
		}
	}
	f := &fault{reason: ReasonTrap, text: "trapped: " + text + inside(where)}
	if in.arena.refused {
		f.reason = ReasonMemory
		f.text = fmt.Sprintf("ran out of memory: %s: %s%s", in.plugin.runtime.budget.text(), text, inside(where))
	} else if in.full() || outOfMemory(stderr) {
		f.reason = ReasonMemory
		f.text = fmt.Sprintf("ran out of memory (limit %s): %s%s", bytesText(in.plugin.settings.Limits.Memory), text, inside(where))
	}
	return f
}

// full: the next page would have been refused.
func (in *instance) full() bool {
	return in.module != nil && !in.module.IsClosed() && in.memory != nil &&
		in.memory.Size()/pageSize >= in.plugin.settings.Limits.pages()
}

// spent: the pool is to drop it.
func (in *instance) spent() bool {
	size := in.memory.Size()
	l := in.plugin.settings.Limits.Memory
	return in.dead || in.call.state.Load() != running || in.calls >= in.plugin.settings.Recycle ||
		int64(size) > l-l/4 && size > in.started || in.call.meter.stack.IsValid() && in.call.meter.stack.Len() > keepStack
}

func (in *instance) close() {
	in.plugin.runtime.gate.leave(&in.call.turn)
	in.call.release()
	if in.module != nil {
		_ = in.module.Close(context.Background()) // no file system, nothing to fail
	}
	in.arena.free()
}
