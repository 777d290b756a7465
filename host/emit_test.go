package host

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEmitThatIsRefused(t *testing.T) {
	s := Settings{Publish: []string{"quakes.*", ">"}, Limits: Limits{Outputs: 2, OutputBytes: 64}}
	tests := []struct {
		name    string
		do      func(s *script)
		msg     func(m *Message)
		errno   int32
		failed  string
		error   string
		outputs int
	}{
		{name: "wildcard", do: func(s *script) { s.emit("quakes.*", "x") }, errno: ErrnoInvalid, failed: "emit", error: "wildcard"},
		{name: "empty token", do: func(s *script) { s.emit("quakes..x", "x") }, errno: ErrnoInvalid, failed: "emit", error: "empty token"},
		{name: "line break", do: func(s *script) { s.emit("quakes.x\r\nPUB evil 0", "x") }, errno: ErrnoInvalid, failed: "emit", error: "blank"},
		{name: "not UTF-8", do: func(s *script) { s.emit("quakes.\xff", "x") }, errno: ErrnoInvalid, failed: "emit", error: "invalid"},
		{name: "long subject", do: func(s *script) { s.emit(strings.Repeat("x", 1025), "x") }, errno: ErrnoInvalid, failed: "emit", error: "1025 bytes; the limit is 1024"},
		{name: "server", do: func(s *script) { s.emit("$JS.API.STREAM.DELETE.INGEST", "") }, errno: ErrnoNotAllowed, failed: "forbidden", error: "reserved"},
		{name: "inbox", do: func(s *script) { s.emit("_INBOX.abc", "") }, errno: ErrnoNotAllowed, failed: "forbidden", error: "reserved"},
		{name: "ours", do: func(s *script) { s.emit("mqrun.INGEST.redo.orders", "") }, errno: ErrnoNotAllowed, failed: "forbidden", error: "reserved"},
		{name: "dead letters", do: func(s *script) { s.emit("dlq.orders", "") }, errno: ErrnoNotAllowed, failed: "forbidden", error: "dead-letter"},
		{name: "dead letters as to", do: func(s *script) { s.emit("dlq.orders", "") }, msg: func(m *Message) { m.To = "dlq.orders" }, errno: ErrnoNotAllowed, failed: "forbidden", error: "dead-letter"},
		{name: "no subject and no to", do: func(s *script) { s.emit("", "x") }, msg: func(m *Message) { m.To = "" }, errno: ErrnoInvalid, failed: "emit", error: "no subject"},
		{name: "no subject and no to, but a next step", do: func(s *script) { s.emit("", "x") }, msg: func(m *Message) { m.To, m.Last = "", false }, outputs: 1},
		{name: "one too many", do: func(s *script) { s.emit("", "1").emit("", "2").emit("", "3") }, errno: ErrnoLimit, failed: "limit", error: "more than 2 outputs (limits.outputs)", outputs: 2},
		{name: "too many bytes", do: func(s *script) { s.emit("", strings.Repeat("x", 65)) }, errno: ErrnoLimit, failed: "limit", error: "the outputs pass 64 bytes (limits.output_bytes)"},
		{name: "just enough bytes", do: func(s *script) { s.emit("a.b", strings.Repeat("x", 61)) }, outputs: 1},
		{name: "header bytes count", do: func(s *script) { s.emitHeader("A", strings.Repeat("x", 60)).emit("", "1234") }, errno: ErrnoLimit, failed: "limit", error: "output_bytes"},
		{name: "header name that no client sends", do: func(s *script) { s.emitHeader("a(b)", "x") }, errno: ErrnoInvalid, failed: "emit", error: "not a header name"},
		{name: "too many header bytes", do: func(s *script) { s.emitHeader("A", strings.Repeat("x", 64)) }, errno: ErrnoLimit, failed: "limit", error: "output_bytes"},
		{name: "the first failure counts", do: func(s *script) { s.emit("_INBOX.x", "").emit("a..b", "") }, errno: ErrnoInvalid, failed: "forbidden", error: "reserved"},
	}
	p := load(t, "probe", s)
	for _, tt := range tests {
		s := &script{}
		tt.do(s)
		m := s.do(opSave, probeScratch).ok().message()
		m.Deny = []string{"dlq.>"}
		if tt.msg != nil {
			tt.msg(m)
		}
		res := run(t, p, m)
		if res.EmitFailed != tt.failed || !strings.Contains(res.EmitError, tt.error) || len(res.Outputs) != tt.outputs {
			t.Errorf("%s: %q, %q, %d outputs", tt.name, res.EmitFailed, res.EmitError, len(res.Outputs))
		}
		// The guest sees the errno: as a verdict of its own it is any number.
		s.steps = s.steps[:len(s.steps)-16]
		m.Data = s.bytes()
		if res := run(t, p, m); res.Code != tt.errno {
			t.Errorf("%s: errno %d, want %d", tt.name, res.Code, tt.errno)
		}
	}
}

func TestPublishIsWhatIsAllowed(t *testing.T) {
	for _, tt := range []struct {
		publish []string
		subject string
		ok      bool
	}{
		{nil, "orders.out", true}, // the pipeline's to
		{nil, "orders.other", false},
		{[]string{"quakes.minor"}, "quakes.minor", true},
		{[]string{"quakes.minor"}, "quakes.major", false},
		{[]string{"quakes.*"}, "quakes.major", true},
		{[]string{"quakes.*"}, "quakes.a.b", false},
		{[]string{"quakes.>"}, "quakes.a.b", true},
		{[]string{">"}, "$SYS.x", false},
	} {
		p := load(t, "probe", Settings{Publish: tt.publish})
		res := run(t, p, (&script{}).emit(tt.subject, "x").ok().message())
		if (len(res.Outputs) == 1) != tt.ok || (res.EmitFailed == EmitForbidden) == tt.ok {
			t.Errorf("publish %v, subject %s: %+v", tt.publish, tt.subject, res)
		}
	}
}

func TestHDR03_HeaderKeysAndValuesFromTheGuest(t *testing.T) {
	p := load(t, "probe", Settings{})
	for _, tt := range []struct {
		name, value string
		errno       int32
		failed      string
	}{
		{"X-Ok", "a: b; c=é", 0, ""},
		{"X-Value", "a\r\nNats-Rollup: all", ErrnoInvalid, "emit"},
		{"X-Value", "a\nb", ErrnoInvalid, "emit"},
		{"X-Value", "a\x00", ErrnoInvalid, "emit"},
		{"bad key", "v", ErrnoInvalid, "emit"},
		{"", "v", ErrnoInvalid, "emit"},
		{"a:b", "v", ErrnoInvalid, "emit"},
		{"a\r\nb", "v", ErrnoInvalid, "emit"},
		{"Kéy", "v", ErrnoInvalid, "emit"},
		{"Nats-Msg-Id", "v", ErrnoNotAllowed, "forbidden"},
		{"nats-rollup", "all", ErrnoNotAllowed, "forbidden"},
		{"MQRUN-Subject", "v", ErrnoNotAllowed, "forbidden"},
	} {
		s := (&script{}).emitHeader(tt.name, tt.value).do(opSave, probeScratch).emit("", "data").show(probeScratch, 4).ok()
		res := run(t, p, s.message())
		if got := int32(binary.LittleEndian.Uint32(res.Outputs[1].Data)); got != tt.errno || res.EmitFailed != tt.failed {
			t.Errorf("%q: %q: errno %d, failed %q (%s)", tt.name, tt.value, got, res.EmitFailed, res.EmitError)
		}
		var want []Field
		if tt.errno == 0 {
			want = []Field{{tt.name, tt.value}}
		}
		if diff := cmp.Diff(want, res.Outputs[0].Header); diff != "" {
			t.Errorf("%q: %s", tt.name, diff)
		}
	}
}

func TestPendingHeadersGoWithTheEmitThatFailed(t *testing.T) {
	p := load(t, "probe", Settings{})
	res := run(t, p, (&script{}).emit("", "0").emitHeader("A", "1").emit("not.allowed", "x").emitHeader("B", "2").emit("", "y").ok().message())
	want := []Output{{Data: []byte("0")}, {Header: []Field{{"B", "2"}}, Data: []byte("y")}}
	if diff := cmp.Diff(want, res.Outputs); diff != "" {
		t.Error(diff)
	}
	// Headers that no emit took do not reach the next message.
	run(t, p, (&script{}).emitHeader("C", "3").ok().message())
	if res := run(t, p, (&script{}).emit("", "z").ok().message()); res.Outputs[0].Header != nil {
		t.Errorf("headers of the message before: %v", res.Outputs[0].Header)
	}
}

func TestTooManyHeaders(t *testing.T) {
	p := load(t, "probe", Settings{})
	for _, n := range []int{MaxHeaders, MaxHeaders + 1} {
		s := &script{}
		name, len := s.str("A")
		for range n {
			s.do(opEmitHeader, name, len, name, len)
		}
		res := run(t, p, s.emit("", "x").ok().message())
		if (res.EmitFailed == ReasonLimit) != (n > MaxHeaders) {
			t.Errorf("%d headers: %q", n, res.EmitError)
		}
	}
}
