package host

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/tetratelabs/wazero/api"
)

const (
	// interval is the most instructions that a guest may run between two ticks:
	// some 30 us of common code, 4 ms of the slowest, which is what a guest can
	// hold up others for by going from one to the other.
	interval = 50_000
	// leastInterval is the least, unless the module needs more.
	leastInterval = 1000
	// pace is how long an interval may take: see adapt. A host function that has
	// much to do stops to breathe at the same pace.
	pace = 100 * time.Microsecond
	// maxYield is how late timers may be while guests run.
	maxYield = time.Millisecond
	// leastCharge is what a tick counts at least: the calls that led to it may
	// each have been too short to see.
	leastCharge = 15 * time.Microsecond
	// maxStack bounds the stack that wazero gives a guest, in bytes. It doubles
	// it as needed, to 80 MiB, and has old and new at once.
	maxStack = 16 << 20
	// keepStack is the most that an idle instance may hold on to.
	keepStack = 1 << 20
)

// metering is what a metered instance keeps between ticks.
type metering struct {
	budget  api.MutableGlobal // instructions until the next tick; only for fuel
	stack   reflect.Value     // of the function that runs
	most    int32             // instructions that the last tick gave
	last    int64             // ns on the gate's clock: last breath, or when the call began
	ticked  int64             // ns on the gate's clock: when the last tick was over
	fuel    int64             // left; 0 = no limit
	granted int32             // of it, by the last tick

	ready   []metrics.Sample // goroutines that could run
	yieldAt int64            // ns on the gate's clock: at the latest
}

// refuel begins a call with all of its fuel.
func (m *metering) refuel(fuel int64) {
	if fuel <= 0 {
		return
	}
	m.fuel = fuel
	m.granted = int32(min(fuel, interval))
	m.budget.Set(uint64(uint32(m.granted)))
}

// used is how much of a call's fuel is gone.
func (m *metering) used(fuel int64) int64 {
	if m.fuel <= 0 {
		return 0
	}
	return fuel - m.fuel + int64(m.granted) - int64(int32(uint32(m.budget.Get())))
}

// burn takes what was used since the last tick and says how much fuel may be used
// next, at most most. A tick may not give less than least, so that much is the
// grain of fuel.
func (m *metering) burn(least, most int32) (next int32, left bool) {
	if m.fuel <= 0 {
		return most, true
	}
	m.fuel -= int64(m.granted) - int64(int32(uint32(m.budget.Get())))
	if m.fuel <= 0 {
		return 0, false
	}
	m.granted = int32(min(max(m.fuel, int64(least)), int64(most)))
	return m.granted, true
}

// adapt says how much may be used next, by how long the last of it took. New
// memory and memory far apart make an instruction a hundred times as slow, so an
// instance begins with little, and gets more as long as there is no doubt that it
// was quick: took is of this call alone, and calls before it may have had a part.
func (m *metering) adapt(now int64, took time.Duration, least int32) int32 {
	switch {
	case took > pace:
		m.most = int32(int64(m.most) * int64(pace) / int64(took))
	case now-m.ticked < int64(pace):
		m.most = min(2*m.most, interval)
	}
	m.most = max(m.most, least)
	return m.most
}

// tick is what a metered guest calls when its budget is used up. It is where the
// guest can be stopped, and where everything else in the process gets its turn.
func (c *call) tick() int32 {
	now := c.gate().now()
	c.stopAt(now)
	took := time.Duration(now - c.meter.last)
	least := c.plugin.least
	next, left := c.meter.burn(least, c.meter.adapt(now, took, least))
	switch {
	case !left:
		panic(&fault{reason: ReasonFuel, where: true, text: fmt.Sprintf("ran out of fuel after %d instructions (plugins.%s.limits.fuel)", c.plugin.settings.Limits.Fuel, c.plugin.settings.Name)})
	case c.meter.stack.IsValid() && c.meter.stack.Len() > maxStack:
		panic(&fault{reason: ReasonTrap, where: true, text: "trapped: stack overflow"})
	}
	c.breathe(now, max(took, leastCharge))
	c.meter.ticked = c.meter.last
	return next
}

// yield gives the processor to the broker, timers, and whatever else is ready.
// With nothing ready that costs another thread, which wakes up and looks for
// work; so it is asked first, and timers, which do not count, may wait a little.
func (m *metering) yield(g *gate, now int64) int64 {
	if m.ready == nil {
		m.ready = []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	}
	metrics.Read(m.ready)
	waiting := m.ready[0].Value.Kind() != metrics.KindUint64 || m.ready[0].Value.Uint64() > 0
	if !waiting && now < m.yieldAt {
		return now
	}
	runtime.Gosched()
	after := g.now()
	m.yieldAt = after + int64(maxYield)
	return after
}

// stopAt ends a call whose time is over.
func (c *call) stopAt(now int64) {
	if c.limit <= time.Duration(now-c.started) {
		c.stop(timedOut)
	}
	if why := c.state.Load(); why != running {
		panic(c.stopped(why))
	}
}

// breathe lets others go first, after some CPU was used.
func (c *call) breathe(now int64, used time.Duration) {
	g := c.gate()
	c.turn.lane.charge(now, used)
	asked := c.meter.yield(g, now)
	c.meter.last = asked
	if !g.contended() {
		return
	}
	if !g.yield(&c.turn, asked, c.done) {
		panic(c.stopped(c.state.Load()))
	}
	c.resume(asked)
}

// tickFunc is tick as wazero calls it.
func tickFunc() api.GoModuleFunc {
	return func(ctx context.Context, _ api.Module, stack []uint64) {
		c, ok := ctx.(*call)
		if !ok {
			c = ctx.Value(callKey{}).(*call)
		}
		stack[0] = uint64(uint32(c.tick()))
	}
}

// stackOf finds the stack in wazero's own function. It offers no way to see or
// to bound it, so its field is read by name; a test tells when that is gone.
func stackOf(f api.Function) reflect.Value {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	s := v.Elem().FieldByName("stack")
	if s.Kind() != reflect.Slice {
		return reflect.Value{}
	}
	return s
}
