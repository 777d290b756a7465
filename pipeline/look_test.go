package pipeline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

func TestRetryWords(t *testing.T) {
	for _, tt := range []struct {
		p    config.Pipeline
		want []string
	}{
		{
			config.Pipeline{DeadLetter: "dlq.a", Retry: config.Retry{Attempts: 12, Initial: 500 * time.Millisecond, Factor: 2, Max: 5 * time.Minute, Jitter: 0.2}},
			[]string{"attempt 2 after 500ms ±20 %, attempt 3 after 1s ±20 %, attempt 4 after 2s ±20 %, ..., attempt 12 after 5m ±20 %", "dead letter to dlq.a after attempt 12, about 13m32s in all"},
		},
		{
			config.Pipeline{DeadLetter: "none", Retry: config.Retry{Attempts: 3, Initial: 2 * time.Hour, Factor: 1, Max: 2 * time.Hour}},
			[]string{"attempt 2 after 2h, attempt 3 after 2h", "acked, counted and logged (dead_letter: none) after attempt 3, about 4h in all"},
		},
		{
			config.Pipeline{DeadLetter: "dlq.a", Retry: config.Retry{Attempts: 1}},
			[]string{"dead letter to dlq.a after the only attempt"},
		},
	} {
		got := strings.Join(retryWords(&tt.p), "\n")
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s\nlacks %s", got, want)
			}
		}
	}
}

func TestTailsFindTheLastMessages(t *testing.T) {
	r := newRig(t, "plugins: {}\npipelines: {}\n", nil)
	if _, err := r.js().CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	var rare []uint64
	for i := range 200 {
		subject := "s.often"
		if i%23 == 0 {
			subject = "s.rare"
		}
		if ack := r.pub(subject, fmt.Sprint(i)); subject == "s.rare" {
			rare = append(rare, ack.Sequence)
		}
	}
	for _, tt := range []struct {
		n    int
		want uint64
	}{{0, 201}, {1, rare[len(rare)-1]}, {3, rare[len(rare)-3]}, {len(rare), rare[0]}, {1000, 1}} {
		got, err := Tails(t.Context(), r.js(), "s.rare", tt.n)
		if err != nil || len(got) != 1 || got[0].Start != tt.want {
			t.Errorf("the last %d: %v, %v; want %d", tt.n, got, err, tt.want)
		}
	}
	if got, err := Tails(t.Context(), r.js(), "nowhere.>", 5); err != nil || got != nil {
		t.Errorf("a subject in no stream: %v, %v", got, err)
	}
}

func TestMovesOnlyTell(t *testing.T) {
	r := newRig(t, one, map[string]native{"a": copyAll})
	r.pub("orders.x", "1")
	r.read("MQRUN_ORDERS", "done.orders", 1)
	cfg := r.load(`
streams: { RESULTS: { subjects: ["done.>"] } }
plugins: { a: { module: a.wasm } }
pipelines: { orders: { from: "orders.>", steps: [a], to: done.orders } }
`)
	moves, err := Moves(t.Context(), r.js(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Move{{Subject: "done.orders", From: "MQRUN_ORDERS", To: "RESULTS", Messages: 1}}, moves); d != "" {
		t.Error(d)
	}
	if _, err := r.js().Stream(t.Context(), "RESULTS"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the plan made a stream: %v", err)
	}
}

func TestStatusCountsReasonsAndSeconds(t *testing.T) {
	r := each(t, func(m *host.Message, r *host.Result) error {
		switch string(m.Data) {
		case "no":
			r.Code = host.Reject
		case "trap":
			return &host.CallError{Reason: "trap", Text: "boom"}
		default:
			emit(r, "", "ok")
		}
		return nil
	})
	for _, s := range []string{"fine", "no", "no", "trap"} {
		r.pub("orders.x", s)
	}
	r.read("MQRUN_DLQ", "dlq.orders", 3)
	r.settled("MQRUN", "orders")
	r.idle("orders")
	s := r.m.Status()[0]
	if d := cmp.Diff(map[string]int64{"rejected": 2, "trap": 1}, s.DeadBy); d != "" || s.Dead != 3 {
		t.Errorf("%d dead\n%s", s.Dead, d)
	}
	if s.Seconds.Count != uint64(s.Handled) || s.Seconds.Count != 6 || s.Seconds.Sum <= 0 || s.Seconds.Buckets[30] != 6 {
		t.Errorf("%+v of %d walks", s.Seconds, s.Handled)
	}
	if p := r.m.Pending(t.Context()); len(p) != 1 || p["orders"] != 0 {
		t.Errorf("pending %v", p)
	}
}

// A trial of one module runs the whole chain, from the pipeline's input.
func TestTrialRunsTheWholeChain(t *testing.T) {
	rt, err := host.New(t.Context(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	for to, from := range map[string]string{"echo.wasm": "echo.wasm", "trap.wasm": "abort.wasm"} {
		wasm, err := os.ReadFile(filepath.Join("../host/testdata", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), wasm, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "pipelines.yaml")
	yaml := "plugins: { first: { module: echo.wasm }, last: { module: echo.wasm } }\npipelines: { p: { from: ingest.x, steps: [first, last], to: out.x } }\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.LoadOptions{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		step, module string
		want         Outcome
	}{
		{"last", "echo.wasm", Outcome{Passes: true, Verdict: "ok", Outputs: 1}},
		{"first", "echo.wasm", Outcome{Passes: true, Verdict: "ok", Outputs: 1}},
		{"last", "trap.wasm", Outcome{Step: "last"}},
	} {
		trial, err := OpenTrial(t.Context(), rt, cfg, "p", tt.step, filepath.Join(dir, tt.module))
		if err != nil {
			t.Fatal(err)
		}
		got, err := trial.Run(t.Context(), Letter{Subject: "ingest.x", Stream: "MQRUN", Original: 7, Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		if got.Passes != tt.want.Passes || got.Outputs != tt.want.Outputs || got.Step != tt.want.Step || got.Passes && got.Verdict != "ok" {
			t.Errorf("%s in %s: %+v", tt.module, tt.step, got)
		}
		if err := trial.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct{ pipeline, step, module, want string }{
		{"q", "last", "echo.wasm", "no such pipeline"},
		{"p", "", "echo.wasm", `step "" is none of first, last`},
		{"p", "last", "none.wasm", "no such file"},
		{"p", "last", "pipelines.yaml", "try "},
	} {
		_, err := OpenTrial(t.Context(), rt, cfg, tt.pipeline, tt.step, filepath.Join(dir, tt.module))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestEveryReasonIsCounted(t *testing.T) {
	for _, r := range []string{
		host.ReasonTrap, host.ReasonTimeout, host.ReasonFuel, host.ReasonMemory, host.ReasonLimit, host.ReasonExit, host.ReasonABI,
		host.EmitFailed, host.EmitForbidden, reasonCrash, reasonTerminated,
	} {
		if !slices.Contains(reasons[:], r) {
			t.Errorf("%s is no label", r)
		}
	}
}
