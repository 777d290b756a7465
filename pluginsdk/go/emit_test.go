//go:build !wasip1

package mqrun

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestEmit(t *testing.T) {
	out := Test(func(m *Message) error {
		buf := []byte("one")
		if err := errors.Join(m.AddHeader("A", "1"), m.AddHeader("A", "2"), m.Emit(buf)); err != nil {
			return err
		}
		copy(buf, "two")
		return m.EmitTo("orders.paid", buf)
	}, Input{})
	want := []Output{
		{Header: []Field{{"A", "1"}, {"A", "2"}}, Data: []byte("one")},
		{Subject: "orders.paid", Data: []byte("two")},
	}
	if out.Verdict != VerdictOK || !reflect.DeepEqual(out.Outputs, want) {
		t.Errorf("got %s %+v; want OK %+v", out.Verdict, out.Outputs, want)
	}
}

func TestEmit_refused(t *testing.T) {
	publish := []string{"orders.paid", "audit.*.new", "log.>"}
	tests := []struct {
		subject string
		want    Errno
		text    string
	}{
		{"orders.paid", 0, ""},
		{"audit.eu.new", 0, ""},
		{"log.a.b", 0, ""},
		{"orders.late", ErrNotAllowed, `emit to "orders.late": not allowed (see the plugin's allow.publish)`},
		{"audit.eu.old", ErrNotAllowed, `emit to "audit.eu.old": not allowed (see the plugin's allow.publish)`},
		{"audit.new", ErrNotAllowed, `emit to "audit.new": not allowed (see the plugin's allow.publish)`},
		{"log", ErrNotAllowed, `emit to "log": not allowed (see the plugin's allow.publish)`},
		{"orders.*", ErrInvalid, `emit to "orders.*": invalid argument`},
		{"log..a", ErrInvalid, `emit to "log..a": invalid argument`},
		{"log.a b", ErrInvalid, `emit to "log.a b": invalid argument`},
		{"", ErrInvalid, `emit to "": invalid argument`},
	}
	for _, tt := range tests {
		t.Run(tt.subject, func(t *testing.T) {
			var err error
			out := Test(func(m *Message) error { err = m.EmitTo(tt.subject, nil); return err }, Input{Publish: publish})
			if tt.want == 0 {
				if err != nil || out.Verdict != VerdictOK {
					t.Errorf("got %v, %s; want OK", err, out.Verdict)
				}
				return
			}
			if !errors.Is(err, tt.want) || err.Error() != tt.text {
				t.Errorf("got %v; want %s", err, tt.text)
			}
			if out.Verdict != VerdictRetry || out.Reason != tt.text {
				t.Errorf("got %s %q; want RETRY %q", out.Verdict, out.Reason, tt.text)
			}
		})
	}
	for _, subject := range []string{"$JS.API.x", "_INBOX.a", "mqrun.MQRUN.redo.a", "dlq.orders"} {
		out := Test(func(m *Message) error { return m.EmitTo(subject, nil) }, Input{Publish: []string{">"}})
		if out.Verdict != VerdictRetry {
			t.Errorf("%s: got %s; want RETRY even with allow.publish \">\"", subject, out.Verdict)
		}
	}
}

// TestEmit_failedTurnsOK is the host's rule: nil does not stand once an emit failed.
func TestEmit_failedTurnsOK(t *testing.T) {
	out := Test(func(m *Message) error {
		if err := m.Emit([]byte("x")); !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v; want ErrInvalid", err)
		}
		return nil
	}, Input{NoTo: true})
	if out.Verdict != VerdictRetry || out.Reason == "" || out.Outputs != nil {
		t.Errorf("got %+v; want RETRY with a reason and no outputs", out)
	}
}

func TestEmit_limits(t *testing.T) {
	tests := []struct {
		name string
		n    int
		data []byte
		last error
	}{
		{"900 outputs", 900, nil, nil},
		{"901 outputs", 901, nil, ErrLimit},
		{"8 MiB", 8, make([]byte, 1<<20), nil},
		{"9 MiB", 9, make([]byte, 1<<20), ErrLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			Test(func(m *Message) error {
				for i := range tt.n {
					err := m.Emit(tt.data)
					if i < tt.n-1 && err != nil || i == tt.n-1 && !errors.Is(err, tt.last) {
						t.Errorf("emit %d: got %v", i+1, err)
					}
				}
				return nil
			}, Input{})
		})
	}
}

func TestAddHeader_refused(t *testing.T) {
	tests := []struct {
		name, value string
		want        Errno
	}{
		{"Nats-Msg-Id", "1", ErrNotAllowed},
		{"mqrun-reason", "1", ErrNotAllowed},
		{"", "1", ErrInvalid},
		{"A B", "1", ErrInvalid},
		{"A:", "1", ErrInvalid},
		{"A", "1\r\nNats-Msg-Id: 2", ErrInvalid},
	}
	for _, tt := range tests {
		out := Test(func(m *Message) error {
			if err := m.AddHeader(tt.name, tt.value); !errors.Is(err, tt.want) {
				t.Errorf("%q %q: got %v; want %v", tt.name, tt.value, err, tt.want)
			}
			return m.Emit(nil)
		}, Input{})
		if out.Verdict != VerdictRetry || out.Reason == "" {
			t.Errorf("%q %q: got %s %q; want RETRY with a reason", tt.name, tt.value, out.Verdict, out.Reason)
		}
	}
}

// TestAddHeader_takenByFailedEmit is the ABI's rule: pending headers go with
// the next emit whether it succeeds or not.
func TestAddHeader_takenByFailedEmit(t *testing.T) {
	Test(func(m *Message) error {
		_ = m.AddHeader("A", "1")
		_ = m.EmitTo("bad subject", nil)
		_ = m.Emit(nil)
		if out := current.Load().out.Outputs; len(out) != 1 || out[0].Header != nil {
			t.Errorf("got %+v; want one output without headers", out)
		}
		return nil
	}, Input{})
}

func TestLog(t *testing.T) {
	out := Test(func(*Message) error {
		for i := range 70 {
			Log(Warn, strconv.Itoa(i))
		}
		return nil
	}, Input{})
	if len(out.Log) != 64 || out.Log[63] != (LogLine{Warn, "63"}) {
		t.Errorf("got %d lines; want the first 64", len(out.Log))
	}
}

func TestErrno(t *testing.T) {
	for e := ErrUnavailable; e < 0; e++ {
		if strings.HasPrefix(e.Error(), "host error") {
			t.Errorf("%d has no text of its own", e)
		}
	}
	if got := Errno(-99).Error(); got != "host error -99" {
		t.Errorf("got %q", got)
	}
}
