package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// run gives one script to p and fails the test when there is no verdict.
func run(t *testing.T, p *Plugin, m *Message) *Result {
	t.Helper()
	res := &Result{}
	if err := p.Handle(t.Context(), m, res); err != nil {
		t.Fatal(err)
	}
	return res
}

func TestEveryImportIsBound(t *testing.T) {
	bound := map[string]bool{}
	for _, f := range importFuncs() {
		bound[f.Name] = f.run != nil
	}
	for _, f := range Imports() {
		if !bound[f.Name] {
			t.Errorf("%s is not bound", f.Name)
		}
		if f.Meaning == "" {
			t.Errorf("%s has no meaning", f.Name)
		}
	}
}

func TestReadsFollowTheReadRule(t *testing.T) {
	p := load(t, "probe", Settings{Config: map[string]string{"limit": "0123", "empty": ""}})
	base := func(s *script) *Message {
		m := s.message()
		m.Header = map[string][]string{"X-Id": {"first", "second"}, "x-ID": {"third"}, "Empty": {""}, "Nats-Msg-Id": {"secret"}, "mqrun-step": {"secret"}}
		return m
	}
	const to = probeScratch
	tests := []struct {
		name string
		do   func(s *script, room uint32)
		want string // what was read; "-" = absent
	}{
		{"subject", func(s *script, room uint32) { s.do(opMeta, MetaSubject, to, room) }, "orders.new"},
		{"stream", func(s *script, room uint32) { s.do(opMeta, MetaStream, to, room) }, "INGEST"},
		{"pipeline", func(s *script, room uint32) { s.do(opMeta, MetaPipeline, to, room) }, "orders"},
		{"plugin", func(s *script, room uint32) { s.do(opMeta, MetaPlugin, to, room) }, "probe"},
		{"no such meta", func(s *script, room uint32) { s.do(opMeta, 4, to, room) }, "-"},
		{"header", func(s *script, room uint32) { p, n := s.str("X-Id"); s.do(opHeader, p, n, 0, to, room) }, "first"},
		{"header in another case", func(s *script, room uint32) { p, n := s.str("x-id"); s.do(opHeader, p, n, 2, to, room) }, "third"},
		{"header without value", func(s *script, room uint32) { p, n := s.str("empty"); s.do(opHeader, p, n, 0, to, room) }, ""},
		{"header index too large", func(s *script, room uint32) { p, n := s.str("X-Id"); s.do(opHeader, p, n, 3, to, room) }, "-"},
		{"header index -1", func(s *script, room uint32) { p, n := s.str("X-Id"); s.do(opHeader, p, n, 1<<32-1, to, room) }, "-"},
		{"header absent", func(s *script, room uint32) { p, n := s.str("X-No"); s.do(opHeader, p, n, 0, to, room) }, "-"},
		{"header without name", func(s *script, room uint32) { s.do(opHeader, 0, 0, 0, to, room) }, "-"},
		{"hidden header", func(s *script, room uint32) { p, n := s.str("Nats-Msg-Id"); s.do(opHeader, p, n, 0, to, room) }, "-"},
		{"hidden header in capitals", func(s *script, room uint32) { p, n := s.str("MQRUN-STEP"); s.do(opHeader, p, n, 0, to, room) }, "-"},
		{"headers", func(s *script, room uint32) { s.do(opHeaders, to, room) }, "Empty: \r\nX-Id: first\r\nX-Id: second\r\nx-ID: third\r\n"},
		{"config", func(s *script, room uint32) { p, n := s.str("limit"); s.do(opConfig, p, n, to, room) }, "0123"},
		{"config without value", func(s *script, room uint32) { p, n := s.str("empty"); s.do(opConfig, p, n, to, room) }, ""},
		{"config absent", func(s *script, room uint32) { p, n := s.str("none"); s.do(opConfig, p, n, to, room) }, "-"},
		{"whole config", func(s *script, room uint32) { s.do(opConfig, 0, 0, to, room) }, `{"empty":"","limit":"0123"}`},
	}
	for _, tt := range tests {
		for _, room := range []uint32{0, 3, 1 << 16, 1 << 31, 1<<32 - 1} {
			s := (&script{}).do(opFill, to, 0, 64)
			tt.do(s, room)
			res := run(t, p, base(s.do(opSave, to+1<<16).show(to+1<<16, 4).show(to, 64).ok()))
			got := int32(binary.LittleEndian.Uint32(res.Outputs[0].Data))
			if tt.want == "-" {
				if got != ErrnoAbsent {
					t.Errorf("%s: %d, want absent", tt.name, got)
				}
				continue
			}
			copied := tt.want[:min(len(tt.want), int(min(room, 64)))]
			if got != int32(len(tt.want)) || !strings.HasPrefix(string(res.Outputs[1].Data), copied) {
				t.Errorf("%s with room %d: length %d, %q; want %d, %q", tt.name, room, got, res.Outputs[1].Data, len(tt.want), copied)
			}
			if room < 60 && res.Outputs[1].Data[room] != 0 {
				t.Errorf("%s with room %d wrote more than that", tt.name, room)
			}
		}
	}
}

func TestMetaNumbers(t *testing.T) {
	p := load(t, "probe", Settings{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for field, want := range []int64{17, 2, 5, at.UnixNano(), 9} {
		s := &script{}
		m := s.do(opMetaInt, uint32(field), probeScratch).show(probeScratch, 8).ok().message()
		m.Time, m.Pending = at, 9
		if got := int64(binary.LittleEndian.Uint64(run(t, p, m).Outputs[0].Data)); got != want {
			t.Errorf("field %d: %d, want %d", field, got, want)
		}
	}
	left := func(field uint32) int64 {
		s := &script{}
		return int64(binary.LittleEndian.Uint64(run(t, p, s.do(opMetaInt, field, probeScratch).show(probeScratch, 8).ok().message()).Outputs[0].Data))
	}
	if ms := left(MetaMillisLeft); ms <= 0 || ms > 5000 {
		t.Errorf("%d ms left of 5 s", ms)
	}
	if v := left(6); v != -1 {
		t.Errorf("unknown field: %d", v)
	}
}

// Every function that takes a pointer, with every kind of wrong one.
func TestPointerOutOfBoundsEndsTheCall(t *testing.T) {
	p := load(t, "probe", Settings{Config: map[string]string{"k": strings.Repeat("v", 64)}})
	calls := map[string]func(ptr, n uint32) (op uint32, args []uint32){
		"input":             func(ptr, n uint32) (uint32, []uint32) { return opInput, []uint32{ptr, n} },
		"meta":              func(ptr, n uint32) (uint32, []uint32) { return opMeta, []uint32{0, ptr, n} },
		"header name":       func(ptr, n uint32) (uint32, []uint32) { return opHeader, []uint32{ptr, n, 0, 0, 0} },
		"headers":           func(ptr, n uint32) (uint32, []uint32) { return opHeaders, []uint32{ptr, n} },
		"config key":        func(ptr, n uint32) (uint32, []uint32) { return opConfig, []uint32{ptr, n, 0, 0} },
		"config":            func(ptr, n uint32) (uint32, []uint32) { return opConfig, []uint32{0, 0, ptr, n} },
		"emit subject":      func(ptr, n uint32) (uint32, []uint32) { return opEmit, []uint32{ptr, n, 0, 0} },
		"emit data":         func(ptr, n uint32) (uint32, []uint32) { return opEmit, []uint32{0, 0, ptr, n} },
		"emit_header name":  func(ptr, n uint32) (uint32, []uint32) { return opEmitHeader, []uint32{ptr, n, 0, 1} },
		"emit_header value": func(ptr, n uint32) (uint32, []uint32) { return opEmitHeader, []uint32{0, 1, ptr, n} },
		"reason":            func(ptr, n uint32) (uint32, []uint32) { return opReason, []uint32{ptr, n} },
		"log":               func(ptr, n uint32) (uint32, []uint32) { return opLog, []uint32{1, ptr, n} },
	}
	for name, call := range calls {
		fn, _, _ := strings.Cut(name, " ")
		for _, tt := range []struct{ ptr, n uint32 }{
			{1<<32 - 16, 64}, {1<<32 - 1, 1<<32 - 1}, {probeMemory - 1, 2}, {probeMemory, 1}, {1 << 31, 1}, {probeMemory - 8, 1 << 31},
		} {
			op, args := call(tt.ptr, tt.n)
			s := &script{}
			m := s.do(op, args...).ok().message()
			m.Header = map[string][]string{"H": {strings.Repeat("v", 64)}}
			m.Subject = strings.Repeat("s", 64)
			err := p.Handle(t.Context(), m, &Result{})
			var ce *CallError
			if !errors.As(err, &ce) || ce.Reason != ReasonABI {
				t.Errorf("%s(%d, %d): %v", name, tt.ptr, tt.n, err)
				continue
			}
			want := fmt.Sprintf("probe: message 17 of INGEST: %s: pointer %d + ", fn, tt.ptr)
			if !strings.HasPrefix(ce.Text, want) || !strings.HasSuffix(ce.Text, " is outside the guest's memory (262144 bytes)") {
				t.Errorf("%s(%d, %d): %s", name, tt.ptr, tt.n, ce.Text)
			}
		}
		// Nothing is read or written at length 0, so the pointer is not looked at.
		op, args := call(1<<32-1, 0)
		s := &script{}
		run(t, p, s.do(op, args...).ok().message())
		// The last byte of memory is the guest's.
		op, args = call(probeMemory-1, 1)
		s = &script{}
		run(t, p, s.do(op, args...).ok().message())
	}
}

func TestVerdicts(t *testing.T) {
	p := load(t, "probe", Settings{})
	for _, code := range []int32{OK, Retry, Reject, Drop, 4, 255, -1, 1 << 30, -1 << 31} {
		s := &script{}
		res := run(t, p, s.emit("", "staged").do(opConst, uint32(code)).message())
		if res.Code != code {
			t.Errorf("verdict %d came as %d", code, res.Code)
		}
		if staged := len(res.Outputs); (staged == 1) != (code == OK) {
			t.Errorf("verdict %d has %d outputs", code, staged)
		}
	}
}

func TestReason(t *testing.T) {
	p := load(t, "probe", Settings{Limits: Limits{ReasonBytes: 16}})
	for in, want := range map[string]string{
		"plain": "plain", "": "", "a\r\nNats-Rollup: all": "a Nats-Rollup: a", " \t x \x00\x1b[1m ": "x [1m", "bad \xff": "bad \ufffd",
		strings.Repeat("é", 20): strings.Repeat("é", 8), "123456789012345é": "123456789012345",
	} {
		s := &script{}
		a, n := s.str("first")
		b, m := s.str(in)
		res := run(t, p, s.do(opReason, a, n).do(opReason, b, m).do(opConst, 1).message())
		if res.Reason != want {
			t.Errorf("reason %q came as %q, want %q", in, res.Reason, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	p := load(t, "probe", Settings{})
	for ms, want := range map[uint32]time.Duration{0: 0, 500: 500 * time.Millisecond, 1<<32 - 1: 24 * time.Hour, 24 * 3600 * 1000: 24 * time.Hour} {
		s := &script{}
		res := run(t, p, s.do(opRetryAfter, ms).do(opConst, 1).message())
		if !res.RetrySet || res.RetryAfter != want {
			t.Errorf("retry_after(%d): %v %v", ms, res.RetrySet, res.RetryAfter)
		}
	}
	if res := run(t, p, (&script{}).do(opConst, 1).message()); res.RetrySet {
		t.Error("set without having been called")
	}
}

func TestOutputsKeepTheirOrderAndHeaders(t *testing.T) {
	p := load(t, "probe", Settings{Publish: []string{"quakes.*"}})
	s := (&script{}).emit("", "one").emitHeader("A", "1").emitHeader("B", "").emit("quakes.major", "two").emit("orders.out", "").ok()
	want := []Output{
		{Data: []byte("one")},
		{Subject: "quakes.major", Header: []Field{{"A", "1"}, {"B", ""}}, Data: []byte("two")},
		{Subject: "orders.out", Data: []byte{}},
	}
	if diff := cmp.Diff(want, run(t, p, s.message()).Outputs); diff != "" {
		t.Error(diff)
	}
}
