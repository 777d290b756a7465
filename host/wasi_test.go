package host

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// Ours must link wherever wazero's own WASI does.
func TestWASIHasEveryFunctionWithItsSignature(t *testing.T) {
	ctx := t.Context()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	theirs, err := wasi_snapshot_preview1.NewBuilder(r).Compile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]string{}
	for _, f := range wasiFuncs() {
		ours[f.Name] = f.Signature()
	}
	names := func(ts []api.ValueType) (out []string) {
		for _, v := range ts {
			out = append(out, api.ValueTypeName(v))
		}
		return out
	}
	for name, def := range theirs.ExportedFunctions() {
		if want := signature(names(def.ParamTypes()), names(def.ResultTypes())); ours[name] != want {
			t.Errorf("%s is %s, want %s", name, ours[name], want)
		}
		delete(ours, name)
	}
	for name := range ours {
		t.Errorf("%s is not in WASI", name)
	}
}

func TestWASIStreams(t *testing.T) {
	const at = probeScratch
	for name, tt := range map[string]struct {
		s    *script
		want int32
	}{
		"stdin ends":               {(&script{}).do(opFdRead, 0, at, 1, at+8), wasiOK},
		"read of stdout":           {(&script{}).do(opFdRead, 1, at, 1, at+8), wasiBadf},
		"read of a file":           {(&script{}).do(opFdRead, 3, at, 1, at+8), wasiBadf},
		"write to stdin":           {(&script{}).do(opFdWrite, 0, at, 0, at+8), wasiBadf},
		"write to a file":          {(&script{}).do(opFdWrite, 3, at, 0, at+8), wasiBadf},
		"write of nothing":         {(&script{}).do(opFdWrite, 1, at, 0, at+8), wasiOK},
		"too many pieces":          {(&script{}).do(opFdWrite, 1, at, maxIovs+1, at+8), wasiInval},
		"pieces out of bounds":     {(&script{}).do(opFdWrite, 1, 1<<32-8, 1, at+8), wasiFault},
		"piece out of bounds":      {(&script{}).do(opStore, at, 1<<31).do(opStore, at+4, 1<<31).do(opFdWrite, 1, at, 1, at+8), wasiFault},
		"result out of bounds":     {(&script{}).do(opFdWrite, 1, at, 0, 1<<32-2), wasiFault},
		"stat of stdout":           {(&script{}).do(opFdstat, 1, at), wasiOK},
		"stat of a file":           {(&script{}).do(opFdstat, 4, at), wasiBadf},
		"stat out of bounds":       {(&script{}).do(opFdstat, 1, probeMemory-8), wasiFault},
		"random out of bounds":     {(&script{}).do(opRandomGet, probeMemory-8, 9), wasiFault},
		"random, huge":             {(&script{}).do(opRandomGet, 0, 1<<32-1), wasiFault},
		"no random":                {(&script{}).do(opRandomGet, 1<<32-1, 0), wasiFault},
		"clock of the CPU":         {(&script{}).do(opClockTime, 2, at), wasiInval},
		"clock out of bounds":      {(&script{}).do(opClockTime, 0, probeMemory-4), wasiFault},
		"poll of nothing":          {(&script{}).do(opPollOneoff, at, at, 0, at), wasiInval},
		"poll of too much":         {(&script{}).do(opPollOneoff, at, at, 1<<31, at), wasiInval},
		"poll out of bounds":       {(&script{}).do(opPollOneoff, probeMemory-47, at, 1, at), wasiFault},
		"poll into nowhere":        {(&script{}).do(opPollOneoff, at, probeMemory-31, 1, at), wasiFault},
		"poll of an unknown kind":  {(&script{}).do(opStore, at+8, 7).do(opPollOneoff, at, at+64, 1, at+128), wasiInval},
		"poll of an unknown clock": {(&script{}).do(opStore, at+8, 0).do(opStore, at+16, 9).do(opPollOneoff, at, at+64, 1, at+128), wasiInval},
		"poll over itself":         {sleep(time.Microsecond).do(opPollOneoff, at, at, 1, at+128), wasiOK},
		"yield":                    {(&script{}).do(opSchedYield), wasiOK},
	} {
		p := load(t, "probe", Settings{})
		if res := run(t, p, tt.s.message()); res.Code != tt.want {
			t.Errorf("%s: errno %d, want %d", name, res.Code, tt.want)
		}
	}
}

func TestPollAnswersTheClockThatCameFirst(t *testing.T) {
	p := load(t, "probe", Settings{})
	const sub, out = probeScratch, probeScratch + 256
	s := (&script{}).do(opFill, sub, 0, 512)
	for i, ms := range []uint32{60_000, 1} { // two clocks
		a := sub + uint32(i)*48
		s.do(opStore, a, 100+uint32(i)).do(opStore, a+16, 1)
		ns := uint64(ms) * 1e6
		s.do(opStore, a+24, uint32(ns)).do(opStore, a+28, uint32(ns>>32))
	}
	got := run(t, p, s.do(opPollOneoff, sub, out, 2, out+128).show(out, 132).ok().message()).Outputs[0].Data
	if n, user := binary.LittleEndian.Uint32(got[128:]), binary.LittleEndian.Uint64(got); n != 1 || user != 101 {
		t.Errorf("%d events, the first of %d", n, user)
	}
	// Whoever waits for stdout and a minute gets stdout now.
	s = (&script{}).do(opFill, sub, 0, 512).do(opStore, sub+16, 1).do(opStore, sub+28, 1<<20)
	s.do(opStore, sub+48, 7).do(opStore, sub+48+8, 2).do(opStore, sub+48+16, 1)
	got = run(t, p, s.do(opPollOneoff, sub, out, 2, out+128).show(out, 132).ok().message()).Outputs[0].Data
	if n, user := binary.LittleEndian.Uint32(got[128:]), binary.LittleEndian.Uint64(got); n != 1 || user != 7 {
		t.Errorf("%d events, the first of %d", n, user)
	}
}

func TestArgumentsAndEnvironment(t *testing.T) {
	const at = probeScratch
	for _, args := range [][]string{nil, {"main.rb", "-v"}} {
		p := load(t, "probe", Settings{Args: args})
		s := (&script{}).do(opArgsSizes, at, at+4).do(opArgsGet, at+16, at+64).do(opEnvironSizes, at+8, at+12)
		got := run(t, p, s.show(at, 128).ok().message()).Outputs[0].Data
		want := "probe\x00"
		for _, a := range args {
			want += a + "\x00"
		}
		n, size := binary.LittleEndian.Uint32(got), binary.LittleEndian.Uint32(got[4:])
		if int(n) != 1+len(args) || string(got[64:64+size]) != want {
			t.Errorf("%d arguments, %q; want %q", n, got[64:64+size], want)
		}
		if binary.LittleEndian.Uint64(got[8:]) != 0 {
			t.Error("an environment that nobody granted")
		}
	}
}

func TestRandomLooksAtTheDeadline(t *testing.T) {
	p := load(t, "probe", Settings{})
	c := p.pool.idle[0].call
	c.begin(t.Context(), message(""), &Result{}, time.Hour)
	c.stop(timedOut)
	defer func() {
		var f *fault
		if err, ok := recover().(error); !ok || !errors.As(err, &f) || f.reason != ReasonTimeout {
			t.Error("random_get did not end with the call")
		}
		c.end()
		p.pool.idle[0].dead = true
	}()
	randomGet(c, p.pool.idle[0].memory, []uint64{0, 1 << 17})
}

func TestAssemblyScriptAbort(t *testing.T) {
	ce := fail(t, load(t, "abort", Settings{}), message(""))
	if ce.Reason != ReasonTrap || ce.Guest != "boom at h.ts:3:5" || !strings.HasSuffix(ce.Text, `trapped: abort; guest said: "boom at h.ts:3:5"`) {
		t.Errorf("%+v", ce)
	}
}
