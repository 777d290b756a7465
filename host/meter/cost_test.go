package meter_test

import (
	"math/rand/v2"
	"testing"

	"github.com/mqrun/mqrun/host/meter"
)

// Globals of the programs below.
const (
	gFuel   = 0 // rounds and calls that are left, so that every program ends
	gWork   = 1 // instructions executed, as the program itself counts
	gRandom = 2
)

// program writes random functions that count what they execute.
type program struct {
	rng    *rand.Rand
	b      []byte
	labels []byte // of the blocks around: 'l' for a loop
	self   int    // index of the function
	funcs  int
}

func (p *program) op(code ...byte) { p.b = append(p.b, code...) }
func (p *program) i32(v int)       { p.b = appendLEB(append(p.b, 0x41), v) }

func appendLEB(b []byte, v int) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// work is n times two instructions.
func (p *program) work(n int) {
	for range n {
		p.op(0x41, 0, 0x1a)
	}
	p.count(2 * n)
}

// count adds what has been executed, with itself.
func (p *program) count(n int) {
	p.op(0x23, gWork)
	p.i32(n + 4)
	p.op(0x6a, 0x24, gWork)
}

// maybe puts a random bit on the stack.
func (p *program) maybe() {
	p.count(11) // of these and a branch that follows
	p.op(0x23, gRandom)
	p.i32(1103515245)
	p.op(0x6c)
	p.i32(12345)
	p.op(0x6a, 0x24, gRandom, 0x23, gRandom)
	p.i32(17)
	p.op(0x76)
	p.i32(1)
	p.op(0x71)
}

// burn returns when the fuel is used up.
func (p *program) burn() {
	p.count(7)
	p.op(0x23, gFuel)
	p.i32(1)
	p.op(0x6b, 0x24, gFuel, 0x23, gFuel)
	p.i32(0)
	p.op(0x48, 0x04, 0x40, 0x0f, end)
}

func (p *program) label() byte { return byte(p.rng.IntN(len(p.labels) + 1)) } // the last is the function's

func (p *program) block(depth int, kind byte, code ...byte) {
	p.op(code...)
	p.labels = append([]byte{kind}, p.labels...)
	p.statements(depth - 1)
	p.labels = p.labels[1:]
}

func (p *program) statements(depth int) {
	for range 1 + p.rng.IntN(4) {
		p.statement(depth)
	}
}

func (p *program) statement(depth int) {
	kind := p.rng.IntN(14)
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0, 1:
		p.work(p.rng.IntN(30))
	case 2:
		p.work(p.rng.IntN(3) * p.rng.IntN(900))
	case 3:
		p.burn()
		p.maybe()
		p.op(0x0d, p.label())
	case 4:
		p.burn()
		if p.rng.IntN(3) == 0 {
			p.maybe()
			p.op(0x04, 0x40, 0x12, byte(p.rng.IntN(p.funcs)), end) // return_call
		} else {
			p.op(0x10, byte(p.rng.IntN(p.funcs)))
		}
	case 5, 6, 7:
		p.block(depth, 'l', 0x03, 0x40)
		p.burn()
		p.maybe()
		p.op(0x0d, p.label()%2, end)
	case 8:
		p.block(depth, 'b', 0x02, 0x40)
		p.op(end)
	case 9:
		p.maybe()
		p.block(depth, 'b', 0x04, 0x40)
		if p.rng.IntN(2) == 0 {
			p.block(depth, 'b', 0x05)
		}
		p.op(end)
	case 10:
		p.op(0x02, 0x40)
		p.labels = append([]byte{'b'}, p.labels...)
		p.burn()
		p.maybe()
		p.op(0x0e, 1, p.label(), p.label())
		p.labels = p.labels[1:]
		p.op(end)
	case 11: // catch_all to the block around
		p.op(0x02, 0x40)
		p.labels = append([]byte{'b'}, p.labels...)
		p.block(depth, 'b', 0x1f, 0x40, 1, 2, 0)
		p.burn()
		p.maybe()
		p.op(0x04, 0x40, 0x08, 0, end, end)
		p.labels = p.labels[1:]
		p.op(end)
	case 12, 13:
		p.dispatch()
	}
}

// dispatch is a function's body as Go's compiler makes it.
func (p *program) dispatch() {
	n := 2 + p.rng.IntN(6)
	p.op(0x41, byte(p.rng.IntN(n)), 0x21, 0, 0x03, 0x40)
	for range n {
		p.op(0x02, 0x40)
	}
	p.op(0x20, 0, 0x0e, byte(n-1))
	for k := range n {
		p.op(byte(k))
	}
	p.op(end)
	for k := range n {
		p.work(p.rng.IntN(40))
		p.burn()
		for range p.rng.IntN(3) {
			p.maybe()
			p.op(0x04, 0x40, 0x41, byte(p.rng.IntN(n+1)), 0x21, 0, 0x0c, byte(n-k), end)
		}
		p.op(end)
	}
}

func randomProgram(rng *rand.Rand) []byte {
	b := newBuilder()
	p := &program{rng: rng, funcs: 4}
	for p.self = range p.funcs {
		p.b = nil
		p.burn()
		p.work(40)
		p.statements(5)
		name := ""
		if p.self == 0 {
			name = "run"
		}
		b.function(name, nil, nil, []byte{i32}, append(p.b, end))
	}
	var globals, exports [][]byte
	for i, g := range []struct {
		name  string
		value int
	}{{"fuel", 3000}, {"work", 0}, {"random", int(rng.Uint32() >> 1)}} {
		globals = append(globals, append(appendLEB([]byte{i32, 1, 0x41}, g.value), end))
		exports = append(exports, append(sized([]byte(g.name)), 3, byte(i)))
	}
	b.exports = append(b.exports, exports...)
	b.section(13, []byte{1, 0, 0}).section(6, vector(globals))
	return b.bytes()
}

// What is charged is never less than what has been executed, but for what one
// path may run up unpaid, whatever a program looks like.
func TestChargesCoverTheWork(t *testing.T) {
	const refill = 1 << 14 // a tick forgives up to one charge, which has to be little of it
	k := &ticker{}
	r := newRuntime(t, k)
	var worked, charged int
	for seed := range uint64(400) {
		wasm := randomProgram(rand.New(rand.NewPCG(seed, 7)))
		plain := instantiate(t, r, wasm)
		_, err := plain.ExportedFunction("run").Call(t.Context())
		out, info := rewrite(t, wasm, meter.Options{})
		if info.MinRefill > meter.MinRefill {
			t.Errorf("seed %d: takes %d at least", seed, info.MinRefill)
		}
		k.refill = refill
		mod := instantiate(t, r, out)
		k.ticks = 0
		_, err2 := mod.ExportedFunction("run").Call(t.Context())
		if (err == nil) != (err2 == nil) {
			t.Fatalf("seed %d: %v, metered %v", seed, err, err2)
		}
		for _, name := range []string{"fuel", "work", "random"} {
			if a, b := plain.ExportedGlobal(name).Get(), mod.ExportedGlobal(name).Get(); a != b {
				t.Fatalf("seed %d: %s is %d, metered %d", seed, name, a, b)
			}
		}
		work := int(mod.ExportedGlobal("work").Get())
		charge := k.ticks*refill - int(int32(budget(t, mod).Get()))
		if charge+4096 < work {
			t.Errorf("seed %d: %d instructions executed, %d charged", seed, work, charge)
		}
		if seed%4 == 0 { // it gets on with the least that there is
			k.refill = uint64(info.MinRefill)
			least := instantiate(t, r, out)
			if _, err := least.ExportedFunction("run").Call(t.Context()); (err == nil) != (err2 == nil) {
				t.Fatalf("seed %d: with little: %v", seed, err)
			}
			_ = least.Close(t.Context())
		}
		worked, charged = worked+work, charged+charge
		_ = plain.Close(t.Context())
		_ = mod.Close(t.Context())
	}
	t.Logf("%d instructions counted, %.2f charged for each", worked, float64(charged)/float64(worked))
	if worked < 1_000_000 {
		t.Errorf("only %d instructions in all", worked)
	}
}
