package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// fail gives m to p and returns the CallError.
func fail(t *testing.T, p *Plugin, m *Message) *CallError {
	t.Helper()
	err := p.Handle(t.Context(), m, &Result{})
	var ce *CallError
	if !errors.As(err, &ce) {
		t.Fatalf("got %v, want a CallError", err)
	}
	return ce
}

func TestWSM01_EndlessLoopIsStopped(t *testing.T) {
	p := load(t, "probe", Settings{Limits: Limits{Timeout: 200 * time.Millisecond}})
	other := load(t, "echo", Settings{})
	for range 3 {
		started := make(chan struct{})
		done := make(chan *CallError, 1)
		go func() {
			close(started)
			var ce *CallError
			errors.As(p.Handle(t.Context(), (&script{}).do(opSpin).message(), &Result{}), &ce)
			done <- ce
		}()
		<-started
		run(t, other, message("unaffected"))
		if ce := <-done; ce == nil || ce.Reason != ReasonTimeout || ce.Text != "probe: message 17 of INGEST timed out after 200ms (in spin)" {
			t.Errorf("%v", ce)
		}
	}
}

func TestWSM03_TheInstanceAfterATimeoutIsNotUsedAgain(t *testing.T) {
	for name, first := range map[string]*script{
		"time-out": (&script{}).do(opSpin),
		"exit 0":   (&script{}).do(opProcExit, 0),
		"exit 3":   (&script{}).do(opProcExit, 3),
		"trap":     (&script{}).do(opTrap),
		"pointer":  (&script{}).do(opInput, 1<<31, 1<<31),
		"overflow": (&script{}).do(opRecurse),
	} {
		p := load(t, "probe", Settings{Workers: 1, Limits: Limits{Timeout: time.Minute}})
		if first := (&script{}).do(opCount); run(t, p, first.message()).Code != 1 {
			t.Fatal("the counter does not count")
		}
		if name == "time-out" {
			p = load(t, "probe", Settings{Workers: 1, Limits: Limits{Timeout: 100 * time.Millisecond}})
		}
		ce := fail(t, p, first.message())
		want := map[string]string{"time-out": ReasonTimeout, "exit 0": ReasonExit, "exit 3": ReasonExit, "trap": ReasonTrap, "pointer": ReasonABI, "overflow": ReasonTrap}[name]
		if ce.Reason != want {
			t.Errorf("%s: reason %s (%s)", name, ce.Reason, ce.Text)
		}
		for i := int32(1); i <= 19; i++ {
			if res := run(t, p, (&script{}).do(opCount).message()); res.Code != i {
				t.Fatalf("%s: call %d after it counted %d", name, i, res.Code)
			}
		}
	}
}

func TestExitText(t *testing.T) {
	p := load(t, "probe", Settings{})
	ce := fail(t, p, (&script{}).print(2, "config missing\n").do(opProcExit, 3).message())
	if ce.Text != `probe: message 17 of INGEST exited with code 3; guest said: "config missing"` {
		t.Error(ce.Text)
	}
}

// sleep is a poll_oneoff for d.
func sleep(d time.Duration) *script {
	s := &script{}
	const sub = probeScratch
	s.do(opStore, sub+16, 1) // the monotonic clock
	s.do(opStore, sub+24, uint32(d)).do(opStore, sub+28, uint32(d>>32))
	return s.do(opPollOneoff, sub, sub+64, 1, sub+128)
}

func TestWSM04_SleepingGuestIsStopped(t *testing.T) {
	p := load(t, "probe", Settings{Limits: Limits{Timeout: 100 * time.Millisecond}})
	if ce := fail(t, p, sleep(time.Hour).message()); ce.Reason != ReasonTimeout {
		t.Errorf("%v", ce)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p = load(t, "probe", Settings{Limits: Limits{Timeout: time.Hour}})
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := p.Handle(ctx, sleep(time.Hour).message(), &Result{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	before := time.Now()
	if res := run(t, p, sleep(30*time.Millisecond).message()); res.Code != 0 || time.Since(before) < 30*time.Millisecond {
		t.Errorf("slept %v, errno %d", time.Since(before), res.Code)
	}
}

func TestWSM05_OneInstanceServesOneCallAtATime(t *testing.T) {
	p := load(t, "echo", Settings{Workers: 3})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			var res Result
			for i := range 300 {
				body := strings.Repeat(fmt.Sprintf("worker %d message %d;", w, i), 1+i%50)
				if err := p.Handle(t.Context(), message(body), &res); err != nil {
					t.Error(err)
					return
				}
				if string(res.Outputs[0].Data) != body {
					t.Errorf("worker %d message %d got another's answer", w, i)
					return
				}
			}
		})
	}
	wg.Wait()
	if p.pool.alive > 3 {
		t.Errorf("%d instances for 3 workers", p.pool.alive)
	}
}

func TestWSM07_AnInstanceThatGrewIsReplaced(t *testing.T) {
	p := load(t, "probe", Settings{Workers: 1, Limits: Limits{Memory: 2 << 20}})
	count := func() int32 { return run(t, p, (&script{}).do(opCount).message()).Code }
	if count() != 1 || count() != 2 {
		t.Fatal("the instance is not kept")
	}
	run(t, p, (&script{}).do(opGrow, 20).ok().message()) // 24 of 32 pages: 75 %
	if n := count(); n != 3 {
		t.Errorf("replaced at 75 %%: counted %d", n)
	}
	run(t, p, (&script{}).do(opGrow, 1).ok().message())
	if n := count(); n != 1 {
		t.Errorf("not replaced above 75 %%: counted %d", n)
	}
	p = load(t, "probe", Settings{Workers: 1, Recycle: 3})
	for i, want := range []int32{1, 2, 3, 1, 2, 3, 1} {
		if n := count(); n != want {
			t.Errorf("message %d with recycle 3: counted %d, want %d", i, n, want)
		}
	}
}

func TestWSM08_OutputsAreCopies(t *testing.T) {
	p := load(t, "probe", Settings{Workers: 1, Publish: []string{">"}})
	type kept struct {
		out  Output
		hash [32]byte
	}
	var all []kept
	for i := range 20 {
		letter := byte('A' + i)
		s := &script{}
		s.do(opFill, probeScratch, uint32(letter), 64<<10)
		s.emitHeader("Letter", string(letter)).show(probeScratch, 64<<10)
		sp, sn := s.str("letters." + string(letter))
		s.do(opEmit, sp, sn, probeScratch, 64<<10)
		s.do(opFill, 0, 0, 16).do(opGrow, 1).do(opFill, probeScratch, 0, 64<<10)
		m := s.ok().message()
		res := &Result{}
		if err := p.Handle(t.Context(), m, res); err != nil {
			t.Fatal(err)
		}
		for _, o := range res.Outputs {
			all = append(all, kept{o, sha256.Sum256([]byte(strings.Repeat(string(letter), 64<<10)))})
		}
		all[len(all)-1].out.Subject = res.Outputs[1].Subject
	}
	for i, k := range all {
		letter := string(rune('A' + i/2))
		if sha256.Sum256(k.out.Data) != k.hash {
			t.Errorf("output %d changed after the call", i)
		}
		if i%2 == 0 && k.out.Header[0].Value != letter || i%2 == 1 && k.out.Subject != "letters."+letter {
			t.Errorf("output %d: %v %q", i, k.out.Header, k.out.Subject)
		}
	}
}

func TestWSM09_ClockAndRandomAreReal(t *testing.T) {
	read := func(p *Plugin) (now time.Time, id string) {
		s := (&script{}).do(opClockTime, 0, probeScratch).do(opRandomGet, probeScratch+8, 16)
		out := run(t, p, s.show(probeScratch, 24).ok().message()).Outputs[0].Data
		return time.Unix(0, int64(binary.LittleEndian.Uint64(out))), string(out[8:])
	}
	seen := map[string]bool{}
	for range 2 {
		p := load(t, "probe", Settings{})
		for range 2 {
			before := time.Now()
			now, id := read(p)
			if now.Before(before) || now.After(time.Now()) {
				t.Errorf("the guest's clock says %v at %v", now, before)
			}
			if seen[id] {
				t.Errorf("random bytes came twice: %x", id)
			}
			seen[id] = true
		}
	}
}

func TestWSM10_StateAfterATrapOrStackOverflow(t *testing.T) {
	p := load(t, "probe", Settings{Workers: 1, Limits: Limits{Timeout: time.Minute}})
	for name, bad := range map[string]*script{"trap": (&script{}).do(opCount).do(opTrap), "overflow": (&script{}).do(opCount).do(opRecurse)} {
		ce := fail(t, p, bad.message())
		if ce.Reason != ReasonTrap {
			t.Errorf("%s: %v", name, ce)
		}
		if name == "trap" && (ce.Text != "probe: message 17 of INGEST trapped: unreachable in trap" || !strings.HasPrefix(ce.Trace, "trap()\nstep(i32) i32\n$")) {
			t.Errorf("%s\n%s", ce.Text, ce.Trace)
		}
		if name == "overflow" && !strings.HasSuffix(ce.Text, "trapped: stack overflow (in recurse)") {
			t.Error(ce.Text)
		}
		if n := run(t, p, (&script{}).do(opCount).message()).Code; n != 1 {
			t.Errorf("after %s the counter went on at %d", name, n)
		}
	}
}

func TestLIF08_PanicInAHostFunctionFailsTheMessageAlone(t *testing.T) {
	p := load(t, "probe", Settings{})
	p.settings.Config = nil
	m := (&script{}).do(opMeta, 0, probeScratch, 4).message()
	config := p.runtime
	p.runtime = &Runtime{gate: config.gate} // the next log line finds no logger
	ce := fail(t, p, (&script{}).do(opLog, 1, 0, 4).message())
	p.pool.settle()
	p.runtime = config
	if ce.Reason != ReasonABI || !strings.HasPrefix(ce.Text, "probe: message 17 of INGEST: log: mqrun itself failed: ") || strings.Contains(ce.Text, "\n") {
		t.Error(ce.Text)
	}
	if !strings.Contains(ce.Trace, "step(i32) i32") || !strings.Contains(ce.Trace, "host/log.go") {
		t.Errorf("no stacks in %s", ce.Trace)
	}
	run(t, p, m) // and the process is alive
}

func TestSEC07_PluginsDoNotSeeOneAnother(t *testing.T) {
	r := open(t, Options{})
	if _, err := r.Load(t.Context(), guest(t, "echo"), Settings{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Load(t.Context(), guest(t, "bad-neighbour"), Settings{Name: "b"}); err == nil || !strings.Contains(err.Error(), `imports "secret" from "other"; plugins may import from`) {
		t.Errorf("%v", err)
	}
	// A plugin named like a host module neither replaces it nor fails.
	for _, name := range []string{ABIv1, wasiModule, envModule} {
		p, err := r.Load(t.Context(), guest(t, "probe"), Settings{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		run(t, p, (&script{}).emit("", "x").ok().message())
	}
}

func TestMemoryGoesBackToTheSystem(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts the process's mappings by /proc")
	}
	p := load(t, "probe", Settings{Isolation: "message"})
	before := mappings(t)
	for range 300 {
		run(t, p, (&script{}).ok().message())
		fail(t, p, (&script{}).do(opTrap).message())
	}
	for range 300 {
		_, err := p.runtime.Load(t.Context(), guest(t, "start-trap"), Settings{Name: "s"})
		if err == nil {
			t.Fatal("loaded")
		}
	}
	if after := mappings(t); after > before+100 {
		t.Errorf("%d mappings became %d", before, after)
	}
}
