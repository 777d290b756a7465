package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

func TestOverlay(t *testing.T) {
	orig := map[string][]string{"A": {"1", "2"}, "b": {"3"}}
	got := overlay(orig, []host.Field{{Name: "B", Value: "x"}, {Name: "B", Value: "y"}, {Name: "C", Value: ""}})
	if diff := cmp.Diff(map[string][]string{"A": {"1", "2"}, "B": {"x", "y"}, "C": {""}}, got); diff != "" {
		t.Error(diff)
	}
	if len(orig) != 2 || orig["b"][0] != "3" {
		t.Errorf("the original changed: %v", orig)
	}
}

func TestOutputHeaderKeepsTheTrace(t *testing.T) {
	in := map[string][]string{"Traceparent": {"t"}, "tracestate": {"s"}, "Secret": {"x"}}
	for _, tt := range []struct {
		emitted []host.Field
		want    nats.Header
	}{
		{nil, nats.Header{"Traceparent": {"t"}, "tracestate": {"s"}}},
		{[]host.Field{{Name: "traceparent", Value: "own"}}, nats.Header{"traceparent": {"own"}}},
	} {
		got := nats.Header{}
		outputHeader(got, in, tt.emitted)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func deadSlot(data string, h nats.Header) *slot {
	return &slot{
		msg: &nats.Msg{Data: []byte(data), Header: h}, subject: "orders.a",
		src:  &source{stream: "MQRUN", ident: newIdentity("orders", "MQRUN", time.Unix(1, 0))},
		info: mq.AckInfo{Sequence: 7, Deliveries: 2},
	}
}

func TestDeadLetterHeadersAreBounded(t *testing.T) {
	s := deadSlot("x", nats.Header{"Nats-Msg-Id": {strings.Repeat("i", 100)}, "X": {"\xff\xfe"}})
	h, _ := deadLetter("orders", s, dead{reason: "trap", text: strings.Repeat("é\r\n", 9000), log: []byte(strings.Repeat("l", 9000))}, 1<<20)
	n := 0
	for name, values := range h {
		for _, v := range values {
			if strings.HasPrefix(name, prefixOurs) {
				n += len(name) + len(v) + 4
			}
			if strings.ContainsAny(v, "\r\n") {
				t.Errorf("%s holds a line break", name)
			}
		}
	}
	if n > maxDeadHeader {
		t.Errorf("%d bytes of Mqrun-* headers", n)
	}
	if c, ok := h["Mqrun-Code"]; ok {
		t.Errorf("code %q of a guest that returned none", c)
	}
	if got := h["X"][0]; got != "\xff\xfe" {
		t.Errorf("X %q: not the bytes that came", got)
	}
}

func TestDeadLetterStub(t *testing.T) {
	s := deadSlot(strings.Repeat("x", 2000), nats.Header{"Big": {strings.Repeat("h", 500)}})
	h, data := deadLetter("orders", s, dead{reason: "rejected"}, 2100)
	if len(data) != 0 || h.Get("Mqrun-Stub") != "2000" || h.Get("Mqrun-Sequence") != "7" || h.Get("Big") != "" {
		t.Errorf("%d bytes, headers %v", len(data), h)
	}
}

func FuzzHeaderSafe(f *testing.F) {
	f.Add("a\r\nNats-Rollup: all", 10)
	f.Add("é\xff", 1)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, min(limit, 5000))
		got := headerSafe(s, limit)
		if len(got) > limit || strings.ContainsAny(got, "\r\n\x00") {
			t.Errorf("headerSafe(%q, %d) = %q", s, limit, got)
		}
	})
}
