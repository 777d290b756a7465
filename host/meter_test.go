package host

import (
	"strings"
	"testing"
	"time"
)

func TestFuel(t *testing.T) {
	p := load(t, "probe", Settings{Workers: 1, Limits: Limits{Fuel: 1_000_000, Timeout: time.Hour}})
	ce := fail(t, p, (&script{}).do(opSpin).message())
	if ce.Reason != ReasonFuel || ce.Text != "probe: message 17 of INGEST ran out of fuel after 1000000 instructions (plugins.probe.limits.fuel) (in spin)" {
		t.Errorf("%s: %s", ce.Reason, ce.Text)
	}
	// Each call has all of it.
	for range 200 {
		run(t, p, (&script{}).do(opFill, 0, 0, 1<<17).ok().message())
	}
	// 16 MiB of fills are a quarter of a million instructions.
	p = load(t, "probe", Settings{Limits: Limits{Fuel: 100_000}})
	s := &script{}
	for range 128 {
		s.do(opFill, probeScratch, 0, 1<<17)
	}
	if ce := fail(t, p, s.message()); ce.Reason != ReasonFuel {
		t.Errorf("%s: %s", ce.Reason, ce.Text)
	}
}

func TestTrusted(t *testing.T) {
	p := load(t, "probe", Settings{Trusted: true, Limits: Limits{Timeout: 100 * time.Millisecond}})
	if !p.Trusted() || load(t, "echo", Settings{}).Trusted() {
		t.Error("who is trusted?")
	}
	if ce := fail(t, p, (&script{}).do(opSpin).message()); ce.Reason != ReasonTimeout {
		t.Errorf("%v", ce)
	}
	if ce := fail(t, p, sleep(time.Hour).message()); ce.Reason != ReasonTimeout {
		t.Errorf("%v", ce)
	}
	run(t, p, (&script{}).ok().message())
}

// What is refused says why, and how to run it nevertheless.
func TestWhatCannotBeMeteredDoesNotLoad(t *testing.T) {
	r := open(t, Options{})
	_, err := r.Load(t.Context(), guest(t, "hostile/wait"), Settings{Name: "orders", File: "orders.wasm"})
	if err == nil || !strings.HasPrefix(err.Error(), `load plugin "orders": orders.wasm cannot be metered: it has a shared memory: threads do not run here (at byte 0x`) ||
		!strings.HasSuffix(err.Error(), "; if you trust it, plugins.orders.limits.meter: off runs it without the meter") {
		t.Errorf("%v", err)
	}
}

// wazero has no other way to see how large a guest's stack is: without this
// field nothing bounds it below 80 MiB.
func TestStackOfAFunctionIsSeen(t *testing.T) {
	p := load(t, "echo", Settings{})
	run(t, p, message("x"))
	s := p.pool.idle[0].call.meter.stack
	if !s.IsValid() || s.Len() < 1<<10 || s.Len() > keepStack {
		t.Errorf("%v", s)
	}
}

func TestMemoryOfAllGuestsIsBounded(t *testing.T) {
	r := open(t, Options{Memory: 1 << 20})
	in := func(name string) *Plugin {
		p, err := r.Load(t.Context(), guest(t, "probe"), Settings{Name: name, Workers: 3})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := in("a"), in("b") // 256 KiB each
	grow := func(n uint32) *script { return (&script{}).do(opGrow, n) }
	if res := run(t, a, grow(13).message()); res.Code != -1 {
		t.Errorf("grew to more than there is: %d", res.Code)
	}
	if n := b.pool.alive; n != 0 {
		t.Error("an idle instance was kept while another wanted memory")
	}
	ce := fail(t, a, grow(13).do(opTrap).message())
	if want := "a: message 17 of INGEST ran out of memory: all guests together hold 256 KiB of 1 MiB (host.memory): unreachable in trap"; ce.Reason != ReasonMemory || ce.Text != want {
		t.Errorf("\n got %s: %s\nwant %s", ce.Reason, ce.Text, want)
	}
	a.pool.settle()
	// One that has it all leaves none for others.
	hold := busyWith(t, a, grow(12).append(sleep(time.Hour)))
	ce = fail(t, b, (&script{}).ok().message())
	if want := "b: message 17 of INGEST: start a new instance: b: needs 256 KiB of memory, and all guests together hold 1 MiB of 1 MiB (host.memory)"; ce.Reason != ReasonMemory || ce.Text != want {
		t.Errorf("\n got %s: %s\nwant %s", ce.Reason, ce.Text, want)
	}
	// Another message of the same plugin waits for the instance that is there.
	done := make(chan error, 1)
	go func() { done <- a.Handle(t.Context(), (&script{}).ok().message(), &Result{}) }()
	for a.pool.inLine() == 0 {
		time.Sleep(time.Millisecond)
	}
	hold()
	if err := <-done; err != nil {
		t.Error(err)
	}
	run(t, b, (&script{}).ok().message())
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET", "not for guests")
	for n, env := range map[int32]map[string]string{0: nil, 2: {"REGION": "eu", "EMPTY": ""}} {
		p := load(t, "probe", Settings{Env: env})
		s := (&script{}).do(opEnvironSizes, probeScratch, probeScratch+4).show(probeScratch, 8).ok()
		res := run(t, p, s.message())
		got := res.Outputs[0].Data
		if int32(got[0]) != n || n == 2 && got[4] != byte(len("EMPTY=")+1+len("REGION=eu")+1) {
			t.Errorf("%v", got)
		}
	}
}
