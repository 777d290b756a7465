package pipeline

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
)

// Headers of the host's own.
const (
	hdrMsgID   = "Nats-Msg-Id"
	hdrSubject = "Mqrun-Subject"
	hdrStub    = "Mqrun-Stub" // size of the payload that a dead letter had no room for
	// hdrUnsendable is base64 of "name: value", of fields that the client library cannot
	// send: copied as they are they would make the dead letter unsendable for ever.
	hdrUnsendable = "Mqrun-Original-Field"
	prefixOurs    = "Mqrun-"
	prefixNats    = "Nats-"
	prefixOrig    = "Mqrun-Original-"
)

// maxHeader is the most that the server stores of one message's headers.
const maxHeader = 1<<16 - 1

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// traced reports whether a header carries W3C trace context, which outputs
// inherit from their input. Folding makes "traceſtate" one too, which cannot be
// sent.
func traced(name string) bool {
	return (strings.EqualFold(name, "traceparent") || strings.EqualFold(name, "tracestate")) && sendable(name)
}

// overlay is what the next step sees: the original's headers, with those of
// the same name (any case) replaced by the emitted ones.
func overlay(orig map[string][]string, emitted []host.Field) map[string][]string {
	if len(emitted) == 0 {
		return orig
	}
	h := make(map[string][]string, len(orig)+len(emitted))
next:
	for name, values := range orig {
		for _, f := range emitted {
			if strings.EqualFold(f.Name, name) {
				continue next
			}
		}
		h[name] = values
	}
	for _, f := range emitted {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	return h
}

// outputHeader puts into h what an output carries: the guest's headers and,
// unless the guest set its own, the input's trace context.
func outputHeader(h nats.Header, input map[string][]string, emitted []host.Field) {
	own := false
	for _, f := range emitted {
		own = own || traced(f.Name)
		h[f.Name] = append(h[f.Name], f.Value)
	}
	if own {
		return
	}
	for name, values := range input {
		if traced(name) {
			h[name] = values
		}
	}
}

// headerBytes is what an output's headers take: the guest's own, and the trace
// that it inherits.
func headerBytes(input map[string][]string, emitted []host.Field) int64 {
	n, own := int64(0), false
	for _, f := range emitted {
		own = own || traced(f.Name)
		n += int64(len(f.Name) + len(f.Value) + 4)
	}
	if own {
		return n
	}
	for name, values := range input {
		if traced(name) {
			for _, v := range values {
				n += int64(len(name) + len(v) + 4)
			}
		}
	}
	return n
}

// sendable reports whether the client library sends a header of that name;
// others write them all the same, and the server stores them.
func sendable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// get is the first value of a header, whatever the case of its name.
func get(h map[string][]string, name string) string {
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
