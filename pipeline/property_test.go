package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mqrun/mqrun/host"
)

// act is what the handlers do in one attempt of one message.
type act struct {
	Do    string // ok, retry, code, trap, emit, reject or drop
	Delay time.Duration
	Outs  []bool // of ok: what the first step emits; false: the second step drops it
}

// script is what becomes of one message, attempt by attempt; the last act is
// repeated.
type script struct {
	Key  string
	Acts []act
}

func (s script) act(attempt int) act { return s.Acts[min(attempt, len(s.Acts))-1] }

// fate is where a message ended.
type fate struct {
	Calls     int
	Outs      []string // in their order
	Dead      string   // reason
	Exhausted bool
}

// contract is the model: a few lines that say what CONTRACT says.
func (s script) contract(id string, attempts int) fate {
	for n := 1; ; n++ {
		a := s.act(n)
		reason := map[string]string{"retry": "retry", "code": "code", "trap": "trap", "emit": "emit"}[a.Do]
		switch {
		case a.Do == "ok":
			f := fate{Calls: n}
			for i, passes := range a.Outs {
				if passes {
					f.Outs = append(f.Outs, fmt.Sprint(id, ".", i))
				}
			}
			return f
		case a.Do == "drop":
			return fate{Calls: n}
		case a.Do == "reject":
			return fate{Calls: n, Dead: "rejected"}
		case n == attempts:
			return fate{Calls: n, Dead: reason, Exhausted: true}
		}
	}
}

// play runs scripts; a message's data is its number.
type play struct {
	mu      sync.Mutex
	scripts []script
	calls   map[string]int
	wrong   []string
}

func (p *play) first(m *host.Message, r *host.Result) error {
	id := string(m.Data)
	i, err := strconv.Atoi(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || i >= len(p.scripts) {
		return fmt.Errorf("message %q", id)
	}
	p.calls[id]++
	if p.calls[id] != m.Attempt {
		p.wrong = append(p.wrong, fmt.Sprintf("message %s: attempt %d in call %d", id, m.Attempt, p.calls[id]))
	}
	a := p.scripts[i].act(m.Attempt)
	// What an attempt emitted before it failed must not be seen.
	if a.Do != "ok" {
		emit(r, "", id+".lost")
	}
	switch a.Do {
	case "ok":
		for k, passes := range a.Outs {
			emit(r, "", fmt.Sprint(id, ".", k), host.Field{Name: "Pass", Value: strconv.FormatBool(passes)})
		}
	case "retry":
		r.Code, r.RetryAfter, r.RetrySet = host.Retry, a.Delay, a.Delay > 0
	case "code":
		r.Code = 77
	case "emit":
		r.EmitFailed, r.EmitError = "emit", "no"
	case "reject":
		r.Code = host.Reject
	case "drop":
		r.Code = host.Drop
	case "trap":
		return &host.CallError{Reason: host.ReasonTrap, Text: "trap"}
	}
	return nil
}

func (p *play) second(m *host.Message, r *host.Result) error {
	if get(m.Header, "Pass") != "true" {
		r.Code = host.Drop
		return nil
	}
	emit(r, "", string(m.Data))
	return nil
}

// Whatever the handlers do, every message ends in exactly its outputs or
// exactly one dead letter, after as many calls as the contract says, in order
// when there is one, and across stops.
func TestEveryMessageEndsAsTheContractSays(t *testing.T) {
	t.Parallel()
	p := &play{}
	r := newRig(t, one, map[string]native{"a": p.first, "b": p.second})
	end := time.Now().Add(12 * time.Second)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		if time.Now().After(end) {
			return // bounded in time, not in number
		}
		round++
		p.check(t, r, fmt.Sprint("p", round))
	})
	t.Logf("%d rounds", round)
}

func (p *play) check(t *rapid.T, r *rig, name string) {
	order := rapid.SampledFrom([]string{"none", "subject", "header:Key", "strict"}).Draw(t, "order")
	attempts := rapid.IntRange(1, 4).Draw(t, "attempts")
	stops := rapid.IntRange(0, 2).Draw(t, "stops")
	window := rapid.SampledFrom([]int{1, 3, 8, 64}).Draw(t, "window")
	acts := rapid.Custom(func(t *rapid.T) act {
		return act{
			Do:    rapid.SampledFrom([]string{"ok", "ok", "ok", "retry", "code", "trap", "emit", "reject", "drop"}).Draw(t, "do"),
			Delay: time.Duration(rapid.IntRange(0, 25).Draw(t, "delay")) * time.Millisecond,
			Outs:  rapid.SliceOfN(rapid.Bool(), 0, 3).Draw(t, "outs"),
		}
	})
	scripts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) script {
		return script{Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), Acts: rapid.SliceOfN(acts, 1, 4).Draw(t, "acts")}
	}), 1, 40).Draw(t, "scripts")

	p.mu.Lock()
	p.scripts, p.calls, p.wrong = scripts, map[string]int{}, nil
	p.mu.Unlock()
	yaml := fmt.Sprintf(`
plugins: { a: { module: a.wasm }, b: { module: b.wasm } }
pipelines:
  %[1]s: { from: "%[1]s.>", steps: [a, b], to: out.%[1]s, order: "%[2]s", workers: 3, max_in_flight: %[4]d, ack_wait: 2s, retry: { attempts: %[3]d, initial: 20ms, factor: 1, max: 20ms, jitter: 0.2 } }
`, name, order, attempts, window)
	r.apply(yaml)
	var last uint64
	for i, s := range scripts {
		last = r.pub(name+"."+s.Key, strconv.Itoa(i), "Key", s.Key).Sequence
	}
	for range stops {
		r.stopManager()
		r.restartManager(yaml)
	}
	r.acked("MQRUN", name, last)
	r.idle(name)

	want := map[string]fate{}
	wantOuts, wantDead := 0, 0
	for i, s := range scripts {
		id := strconv.Itoa(i)
		want[id] = s.contract(id, attempts)
		wantOuts += len(want[id].Outs)
		if want[id].Dead != "" {
			wantDead++
		}
	}
	got := map[string]fate{}
	p.mu.Lock()
	wrong := p.wrong
	for id, n := range p.calls {
		got[id] = fate{Calls: n}
	}
	p.mu.Unlock()
	if wrong != nil {
		t.Fatal(wrong)
	}
	outs, dead := r.count(outputStream(name), "out."+name), r.count("MQRUN_DLQ", "dlq."+name)
	if outs != wantOuts || dead != wantDead {
		t.Fatalf("%d outputs and %d dead letters; want %d and %d", outs, dead, wantOuts, wantDead)
	}
	latest := map[string]int{} // line -> number of the message whose output came last
	for _, m := range r.read(outputStream(name), "out."+name, outs) {
		id, _, _ := strings.Cut(string(m.Data()), ".")
		f := got[id]
		f.Outs = append(f.Outs, string(m.Data()))
		got[id] = f
		i, err := strconv.Atoi(id)
		if err != nil || i >= len(scripts) {
			t.Fatalf("output %q", m.Data())
		}
		line := map[string]string{"none": id, "strict": ""}
		key, ok := line[order]
		if !ok {
			key = scripts[i].Key
		}
		if before, ok := latest[key]; ok && before > i {
			t.Fatalf("output of message %d came after that of %d", i, before)
		}
		latest[key] = i
	}
	for _, m := range r.read("MQRUN_DLQ", "dlq."+name, dead) {
		h, id := m.Headers(), string(m.Data())
		f := got[id]
		if f.Dead != "" {
			t.Fatalf("two dead letters of message %s", id)
		}
		f.Dead, f.Exhausted = h.Get("Mqrun-Reason"), h.Get("Mqrun-Exhausted") == "true"
		if n := h.Get("Mqrun-Attempts"); n != strconv.Itoa(f.Calls) {
			t.Fatalf("message %s: dead after %s attempts; %d calls", id, n, f.Calls)
		}
		got[id] = f
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("messages %v ended otherwise: %s", slices.Sorted(maps.Keys(got)), d)
	}
}
