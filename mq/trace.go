package mq

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"
)

// The names of W3C Trace Context, as they travel in message headers.
const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

type (
	headersKey struct{}
	traceKey   struct{}
	trace      struct{ parent, state string }
)

// HeadersFromContext returns the headers of the message whose Ctx this is, or
// nil. Names keep the case in which they were sent. Do not change the map.
func HeadersFromContext(ctx context.Context) nats.Header {
	h, _ := ctx.Value(headersKey{}).(nats.Header)
	return h
}

// ContextWithTrace returns a context whose publishes carry the given W3C
// traceparent and tracestate headers; state may be empty. A parent that is not
// a traceparent of version 00 (55 characters) leaves ctx as it is.
func ContextWithTrace(ctx context.Context, parent, state string) context.Context {
	if !validTraceparent(parent) {
		return ctx
	}
	if strings.ContainsAny(state, "\r\n") || len(state) > 512 {
		state = ""
	}
	return context.WithValue(ctx, traceKey{}, trace{parent, state})
}

// TraceFromContext returns the trace that a publish with ctx carries, or empty
// strings.
func TraceFromContext(ctx context.Context) (parent, state string) {
	t, _ := ctx.Value(traceKey{}).(trace)
	return t.parent, t.state
}

// validTraceparent reports whether s is 00-<32 hex>-<16 hex>-<2 hex>, in lower
// case, with neither id all zero.
func validTraceparent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for i, c := range []byte(s) {
		switch {
		case i == 2 || i == 35 || i == 52:
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// headerValue finds the first value of a header in any case: those of other
// clients come as they were written.
func headerValue(h nats.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}
