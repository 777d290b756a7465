//go:build !wasip1

package mqrun

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	plain := errors.New("database is away")
	tests := []struct {
		name    string
		err     error
		want    Verdict
		reason  string
		delay   time.Duration
		delayed bool
	}{
		{"nil", nil, VerdictOK, "", 0, false},
		{"plain error", plain, VerdictRetry, "database is away", 0, false},
		{"retry", Retry("later"), VerdictRetry, "later", 0, false},
		{"retry after", RetryAfter(1500*time.Microsecond, "later"), VerdictRetry, "later", 2 * time.Millisecond, true},
		{"retry at once", RetryAfter(-time.Second, "now"), VerdictRetry, "now", 0, true},
		{"retry after a month", RetryAfter(31*24*time.Hour, "moon"), VerdictRetry, "moon", 24 * time.Hour, true},
		{"reject", Reject("no id"), VerdictReject, "no id", 0, false},
		{"wrapped reject", fmt.Errorf("line 3: %w", Reject("no id")), VerdictReject, "line 3: no id", 0, false},
		{"drop", Drop, VerdictDrop, "", 0, false},
		{"wrapped drop", fmt.Errorf("too small: %w", Drop), VerdictDrop, "", 0, false},
		{"two lines", Reject("a\r\nb"), VerdictReject, "a  b", 0, false},
		{"long", Reject(strings.Repeat("é", 600)), VerdictReject, strings.Repeat("é", 512), 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := Test(func(m *Message) error {
				if err := m.Emit([]byte("out")); err != nil {
					t.Error(err)
				}
				return tt.err
			}, Input{})
			if out.Verdict != tt.want || out.Reason != tt.reason || out.Delay != tt.delay || out.Delayed != tt.delayed {
				t.Errorf("got %s %q %v %v; want %s %q %v %v", out.Verdict, out.Reason, out.Delay, out.Delayed, tt.want, tt.reason, tt.delay, tt.delayed)
			}
			if published := len(out.Outputs) == 1; published != (tt.want == VerdictOK) {
				t.Errorf("%s has %d outputs", out.Verdict, len(out.Outputs))
			}
		})
	}
}

func TestMessage(t *testing.T) {
	at := time.Unix(1517966773, 84e7)
	in := Input{
		Data: []byte("payload"), Subject: "orders." + strings.Repeat("x", 300), Stream: "MQRUN", Pipeline: "orders", Plugin: "price",
		Sequence: 17, Attempt: 3, Attempts: 5, Time: at, Pending: 9,
	}
	out := Test(func(m *Message) error {
		if got := string(m.AppendData([]byte("a "))); got != "a payload" {
			t.Errorf("AppendData: %q", got)
		}
		if got := string(m.Data()); got != "payload" {
			t.Errorf("Data: %q", got)
		}
		if got := string(m.AppendData(nil)); got != "payload" {
			t.Errorf("AppendData after Data: %q", got)
		}
		got := []any{m.Subject(), m.Stream(), m.Pipeline(), m.Plugin(), m.Sequence(), m.Attempt(), m.Attempts(), m.Pending(), m.TimeLeft() > 0, m.Time().Equal(at)}
		want := []any{in.Subject, "MQRUN", "orders", "price", uint64(17), 3, 5, uint64(9), true, true}
		if !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
		return nil
	}, in)
	if out.Verdict != VerdictOK {
		t.Errorf("got %s; want OK", out.Verdict)
	}
}

func TestHeader(t *testing.T) {
	long := strings.Repeat("v", 1000)
	in := Input{Header: map[string][]string{"X-Kind": {"a", "b"}, "Long": {long}, "nats-msg-id": {"1"}, "MQRUN-Reason": {"trap"}, "Empty": {""}}}
	Test(func(m *Message) error {
		if v, ok := m.Header("x-KIND"); v != "a" || !ok {
			t.Errorf("Header: %q %v", v, ok)
		}
		if v, ok := m.Header("empty"); v != "" || !ok {
			t.Errorf("empty header: %q %v", v, ok)
		}
		if v, ok := m.AppendHeader([]byte("="), "Long"); string(v) != "="+long || !ok {
			t.Errorf("AppendHeader: %q %v", v, ok)
		}
		for _, name := range []string{"Nats-Msg-Id", "Mqrun-Reason", "None", ""} {
			if v, ok := m.Header(name); ok {
				t.Errorf("%s: got %q; want none", name, v)
			}
			if v := m.HeaderValues(name); v != nil {
				t.Errorf("%s: got %q; want none", name, v)
			}
		}
		if v := m.HeaderValues("X-Kind"); !slices.Equal(v, []string{"a", "b"}) {
			t.Errorf("HeaderValues: %q", v)
		}
		var all []string
		for name, value := range m.Headers() {
			all = append(all, name+"="+value)
		}
		if want := []string{"Empty=", "Long=" + long, "X-Kind=a", "X-Kind=b"}; !slices.Equal(all, want) {
			t.Errorf("Headers: got %q; want %q", all, want)
		}
		return nil
	}, in)
}

func TestConfig(t *testing.T) {
	long := strings.Repeat("v", 1000)
	Test(func(*Message) error {
		for key, want := range map[string]string{"short": "0123", "long": long} {
			if got, ok := Config(key); got != want || !ok {
				t.Errorf("%s: got %q %v", key, got, ok)
			}
		}
		for _, key := range []string{"none", ""} {
			if got, ok := Config(key); ok {
				t.Errorf("%q: got %q; want none", key, got)
			}
		}
		if got, want := string(ConfigJSON()), `{"long":"`+long+`","short":"0123"}`; got != want {
			t.Errorf("ConfigJSON: got %s; want %s", got, want)
		}
		return nil
	}, Input{Config: map[string]string{"short": "0123", "long": long}})
}

func TestHandleAndInit_onlyOnce(t *testing.T) {
	t.Cleanup(func() { guest = plugin{} })
	nothing := func(*Message) error { return nil }
	Handle(nothing)
	Init(func() error { return errors.New("config: key is missing") })
	for name, again := range map[string]func(){"Handle": func() { Handle(nothing) }, "Init": func() { Init(func() error { return nil }) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a second %s did not panic", name)
				}
			}()
			again()
		}()
	}
	out := Test(func(*Message) error { t.Error("handled although Init failed"); return nil }, Input{})
	if out.Verdict != VerdictRetry || out.Reason != "config: key is missing" {
		t.Errorf("got %s %q", out.Verdict, out.Reason)
	}
}

func TestStart_withoutHandler(t *testing.T) {
	h := newNativeHost(Input{})
	current.Store(h)
	defer current.Store(nil)
	var p plugin
	if code := p.start(); code == 0 || !strings.Contains(h.out.Reason, "mqrun.Handle in func init") {
		t.Errorf("got %d %q; want a refusal that says how to register", code, h.out.Reason)
	}
}

func TestTest_letsAPanicThrough(t *testing.T) {
	defer func() {
		if got := recover(); got != "boom" {
			t.Errorf("recovered %v; want boom", got)
		}
		if out := Test(func(*Message) error { return nil }, Input{}); out.Verdict != VerdictOK {
			t.Errorf("the next Test got %s", out.Verdict)
		}
	}()
	Test(func(*Message) error { panic("boom") }, Input{})
}

// TestAllocs is the promise that a handler which asks for no memory gets none.
func TestAllocs(t *testing.T) {
	bad := Reject("bad")
	h := newNativeHost(Input{Data: make([]byte, 4096), Subject: "orders.new", Header: map[string][]string{"X-Kind": {"a"}}})
	h.out.Outputs = make([]Output, 0, 4)
	current.Store(h)
	defer current.Store(nil)
	kind := make([]byte, 0, 64)
	tests := map[string]func(m *Message) error{
		"data":    func(m *Message) error { m.Data()[0]++; return nil },
		"subject": func(m *Message) error { _ = m.Subject() == m.Pipeline(); return nil },
		"numbers": func(m *Message) error { _ = m.Sequence() + m.Pending(); _ = m.Attempt(); return nil },
		"header":  func(m *Message) error { kind, _ = m.AppendHeader(kind[:0], "x-kind"); return nil },
		"emit":    func(m *Message) error { return m.EmitTo("orders.paid", nil) },
		"reject":  func(*Message) error { return bad },
		"drop":    func(*Message) error { return Drop },
	}
	for name, handle := range tests {
		p := plugin{handle: handle}
		n := testing.AllocsPerRun(100, func() {
			h.reset()
			p.call(4096)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a call; want none", name, n)
		}
	}
}
