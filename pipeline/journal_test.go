//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mqrun/mqrun/host"
)

const (
	childDir  = "MQRUN_TEST_CRASH_DIR"
	crashRuns = 6
	crashMsgs = 40
)

const crashing = `
plugins: { a: { module: a.wasm }, b: { module: b.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [a, b], to: done.orders, workers: 4, ack_wait: 5s, retry: { attempts: 12, initial: 20ms, factor: 1, max: 20ms, jitter: 0 } }
  other: { from: "other.>", steps: [a], to: done.other, workers: 4, ack_wait: 5s, retry: { attempts: 12, initial: 20ms, factor: 1, max: 20ms, jitter: 0 } }
`

// TestCrashChild is the process that TestDLQ02 starts: its second step kills
// it with no chance to say anything.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("not a test of its own")
	}
	var working, most atomic.Int64
	r := &rig{t: t, dir: dir, log: &syncWriter{}, native: map[string]native{
		"a": func(m *host.Message, r *host.Result) error {
			emit(r, "", string(m.Data))
			return nil
		},
		"b": func(m *host.Message, r *host.Result) error {
			n := working.Add(1)
			most.Store(max(most.Load(), n))
			defer working.Add(-1)
			if string(m.Data) == "poison" {
				fmt.Printf("poison runs beside %d others\n", n-1)
				_ = os.Stdout.Sync()
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			time.Sleep(5 * time.Millisecond) // so that others are in work when the poison comes
			emit(r, "", string(m.Data))
			return nil
		},
	}}
	r.start()
	defer r.stop()
	r.apply(crashing)
	for i := range crashMsgs { // what an earlier process has stored is not stored again
		if i == crashMsgs/2 {
			r.pub("orders.x", "poison", "Nats-Msg-Id", "poison")
		}
		r.pub("orders.x", fmt.Sprint("m", i), "Nats-Msg-Id", fmt.Sprint("orders", i))
		r.pub("other.x", fmt.Sprint("m", i), "Nats-Msg-Id", fmt.Sprint("other", i))
	}
	r.read("MQRUN_DLQ", "dlq.orders", 1)
	r.read("MQRUN_ORDERS", "done.orders", crashMsgs)
	r.read("MQRUN_OTHER", "done.other", crashMsgs)
	r.settled("MQRUN", "orders")
	r.settled("MQRUN", "other")
}

func TestDLQ02_MessageThatKillsTheProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts processes")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var all strings.Builder
	crashes := 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, exe, "-test.run=^TestCrashChild$", "-test.v")
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.CombinedOutput()
		cancel()
		all.Write(out)
		if err == nil {
			break
		}
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("%v\n%s", err, out)
		}
		if crashes++; crashes > crashRuns {
			t.Fatalf("crashed %d times\n%s", crashes, all.String())
		}
	}
	if crashes != crashesDead {
		t.Errorf("%d crashes; want %d", crashes, crashesDead)
	}
	if n := strings.Count(all.String(), "poison runs beside 0 others"); n < 1 {
		t.Errorf("the poison never ran alone:\n%s", all.String())
	}

	r := &rig{t: t, dir: dir, log: &syncWriter{}}
	r.start()
	defer r.stop()
	h := r.read("MQRUN_DLQ", "dlq.orders", 1)[0].Headers()
	for k, want := range map[string]string{
		"Mqrun-Reason": "crash", "Mqrun-Attempts": "3", "Mqrun-Step": "b", "Mqrun-Exhausted": "false",
		"Mqrun-Error": "the process ended 3 times while the message was in the handler",
	} {
		if got := h.Get(k); got != want {
			t.Errorf("%s: %q; want %q", k, got, want)
		}
	}
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != 1 {
		t.Errorf("%d dead letters; want the poison alone", n)
	}
	for stream, subject := range map[string]string{"MQRUN_ORDERS": "done.orders", "MQRUN_OTHER": "done.other"} {
		seen := map[string]int{}
		for _, m := range r.read(stream, subject, r.count(stream, subject)) {
			seen[string(m.Data())]++
		}
		for i := range crashMsgs {
			if n := seen[fmt.Sprint("m", i)]; n != 1 {
				t.Errorf("%s: m%d came out %d times", subject, i, n)
			}
		}
	}
}

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	open := func() (*journal, string, []crash) {
		t.Helper()
		j, run, crashes, err := openJournal(dir, log)
		if err != nil {
			t.Fatal(err)
		}
		return j, run, crashes
	}
	begin := func() *journal {
		t.Helper()
		j, _, _ := open()
		if err := j.start(); err != nil {
			t.Fatal(err)
		}
		return j
	}
	a, b := newIdentity("a", "MQRUN", time.Unix(0, 35)), newIdentity("b", strings.Repeat("S", 128), time.Unix(0, 36))

	j := begin()
	var held []*record
	for i := range 3 * journalGrow { // more than one part of the file
		held = append(held, j.begin(a, uint64(i+1)))
	}
	for i, r := range held {
		if i != 5 && i != 2*journalGrow+7 {
			j.end(r)
		}
	}
	held[5].step(3)
	j.begin(b, 9) // a place that held the other key
	if err := j.close(); err != nil {
		t.Fatal(err)
	}

	j, run, crashes := open()
	want := []crash{{"a.MQRUN.z.6", 3}, {fmt.Sprintf("a.MQRUN.z.%d", 2*journalGrow+8), 0}, {b.key + ".9", 0}}
	less := func(x, y crash) int { return strings.Compare(x.key, y.key) }
	slices.SortFunc(crashes, less)
	slices.SortFunc(want, less)
	if !slices.Equal(crashes, want) || len(run) != 32 {
		t.Errorf("run %q left %v; want %v", run, crashes, want)
	}
	second, run, crashes, err := openJournal(dir, log)
	if err != nil || run != "" || crashes != nil || second.file.Name() != filepath.Join(dir, "journal-2") {
		t.Errorf("a second process: %v, run %q, %v", err, run, crashes)
	} else if err := second.close(); err != nil {
		t.Error(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}

	j = begin() // counted by now, so they are gone
	j.begin(a, 1)
	j.stopping()
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if r := j.begin(a, 2); r != nil {
		t.Error("a closed journal gave a record")
	}
	j, _, crashes = open()
	if crashes != nil {
		t.Errorf("a process that was told to stop left %v", crashes)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, journalName), []byte(strings.Repeat("no journal\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	j, _, crashes = open()
	if crashes != nil {
		t.Errorf("a stranger's file lists %v", crashes)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
}

func TestCrashCountsOnceForARun(t *testing.T) {
	r := each(t, func(*host.Message, *host.Result) error { return nil })
	kv := r.m.broker.attempts
	log := slog.New(slog.DiscardHandler)
	for _, run := range []string{"first", "first", "second"} {
		if err := countCrashes(t.Context(), kv, run, []crash{{"p.S.x.1", 1}}, log); err != nil {
			t.Fatal(err)
		}
	}
	f, err := r.m.running()[0].(*pipeline).attempts.of(t.Context(), &identity{key: "p.S.x"}, 1, 2)
	if err != nil || f.Crashes != 2 || f.Failed != 2 || f.Reason != reasonCrash || f.Step != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func BenchmarkJournal(b *testing.B) {
	j, _, _, err := openJournal(b.TempDir(), slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	if err := j.start(); err != nil {
		b.Fatal(err)
	}
	id := newIdentity("orders", "MQRUN", time.Now())
	for b.Loop() {
		j.end(j.begin(id, 7))
	}
	if err := j.close(); err != nil {
		b.Fatal(err)
	}
}
