package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// loadLogged is load with the log as lines of JSON.
func loadLogged(t *testing.T, name string, s Settings) (*Plugin, func() []map[string]any) {
	t.Helper()
	var buf bytes.Buffer
	r := open(t, Options{Logger: slog.New(slog.NewJSONHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	s.Name = name
	p, err := r.Load(t.Context(), guest(t, name), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, func() (lines []map[string]any) {
		for l := range bytes.Lines(buf.Bytes()) {
			m := map[string]any{}
			if err := json.Unmarshal(l, &m); err != nil {
				t.Errorf("%s: %v", l, err)
			}
			lines = append(lines, m)
		}
		buf.Reset()
		return lines
	}
}

func TestOBS05_GuestOutputIsTaggedEscapedAndCapped(t *testing.T) {
	p, lines := loadLogged(t, "probe", Settings{})
	s := (&script{}).print(1, "a line\nand a pa").print(1, "rtial line").print(2, "\x1b[31mred\x00\xff{\"level\":\"fake\"}\r\n")
	res := run(t, p, s.ok().message())
	got := lines()
	want := []string{"a line", `\x1b[31mred\x00\xff{"level":"fake"}`, "and a partial line"}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i, l := range got {
		if l["msg"] != want[i] || l["plugin"] != "probe" || l["pipeline"] != "orders" || l["sequence"] != 17.0 || l["stream"] != "INGEST" {
			t.Errorf("%v, want %q", l, want[i])
		}
	}
	if string(res.Log) != strings.Join(want, "\n")+"\n" {
		t.Errorf("for the dead letter: %q", res.Log)
	}
	run(t, p, (&script{}).ok().message())
	if got := lines(); len(got) != 0 {
		t.Errorf("the next message logged %v", got)
	}

	text := ""
	for i := range 5000 {
		text += fmt.Sprintf("line %d\n", i)
	}
	res = run(t, p, (&script{}).print(1, text).ok().message())
	got = lines()
	if last := got[len(got)-1]; len(got) != 65 || last["msg"] != "4936 lines dropped (limits.log_lines, limits.log_bytes)" || last["level"] != "WARN" {
		t.Errorf("%d lines, the last %v", len(got), last)
	}
	if len(res.Log) > MaxLogTail || !strings.HasSuffix(string(res.Log), "line 4998\nline 4999\n") {
		t.Errorf("%d bytes for the dead letter, ending in %q", len(res.Log), res.Log[len(res.Log)-20:])
	}
}

func TestLogBytesAndLongLines(t *testing.T) {
	p, lines := loadLogged(t, "probe", Settings{Limits: Limits{LogBytes: 5000}})
	s := (&script{}).print(1, strings.Repeat("x", 10_000)+"\n").print(1, strings.Repeat("y", 2000)+"\nshort\n")
	run(t, p, s.ok().message())
	got := lines()
	if len(got) != 3 || got[0]["msg"] != strings.Repeat("x", MaxLogLine)+"... (5904 more bytes)" || got[1]["msg"] != "short" || !strings.HasPrefix(fmt.Sprint(got[2]["msg"]), "1 lines dropped") {
		t.Errorf("%v", got)
	}
}

func TestLogImport(t *testing.T) {
	p, lines := loadLogged(t, "probe", Settings{})
	s := &script{}
	a, n := s.str("said\ntwice\n")
	for level := range uint32(6) {
		s.do(opLog, level, a, n)
	}
	run(t, p, s.ok().message())
	for i, l := range lines() {
		want := []string{"DEBUG", "INFO", "WARN", "ERROR", "ERROR", "ERROR"}[i]
		if l["level"] != want || l["msg"] != `said\ntwice` || l["source"] != "log" {
			t.Errorf("level %d: %v", i, l)
		}
	}
}

func TestInitLogsWithoutAMessage(t *testing.T) {
	_, lines := loadLogged(t, "start-section", Settings{})
	got := lines()
	if len(got) != 1 || got[0]["msg"] != "starting" || got[0]["sequence"] != nil {
		t.Errorf("%v", got)
	}
}

func TestPanicLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "just a line": "just a line", "a\nb\n\n": "b",
		"log\npanic: boom\n\ngoroutine 1 [running]:\n":                    "panic: boom",
		"thread 'main' panicked at src/lib.rs:3:5:\nboom\nnote: run with": "thread 'main' panicked at src/lib.rs:3:5: boom",
	} {
		if got := panicLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
