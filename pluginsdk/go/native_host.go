//go:build !wasip1

package mqrun

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The limits of a plugin that sets none.
const (
	maxOutputs     = 900
	maxOutputBytes = 8 << 20
	maxHeaders     = 128
	maxReason      = 1 << 10
	maxLogLines    = 64
	maxLogBytes    = 64 << 10
	maxDelay       = 24 * time.Hour
)

// nativeHost answers the ABI's functions for one call, by the real host's rules.
type nativeHost struct {
	in       Input
	out      Outcome
	fields   []Field // in.Header as the guest sees it
	block    []byte
	pending  []Field // of the next emit
	staged   int     // bytes
	logBytes int
	failed   string // the first emit or header that was refused

	pendingBytes int // of the pending headers
}

func newNativeHost(in Input) *nativeHost {
	h := &nativeHost{in: in}
	names := make([]string, 0, len(in.Header))
	for name := range in.Header {
		if !reservedHeader(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range in.Header[name] {
			h.fields = append(h.fields, Field{name, value})
			h.block = append(h.block, name+": "+value+"\r\n"...)
		}
	}
	return h
}

func (h *nativeHost) text(field int32) string {
	switch field {
	case metaSubject:
		return h.in.Subject
	case metaStream:
		return h.in.Stream
	case metaPipeline:
		return h.in.Pipeline
	case metaPlugin:
		return h.in.Plugin
	}
	return ""
}

func (h *nativeHost) number(field int32) int64 {
	switch field {
	case metaSequence:
		return int64(h.in.Sequence)
	case metaAttempt:
		return int64(max(h.in.Attempt, 1))
	case metaAttempts:
		if h.in.Attempts > 0 {
			return int64(h.in.Attempts)
		}
		return 12
	case metaTime:
		return h.in.Time.UnixNano()
	case metaPending:
		return int64(h.in.Pending)
	case metaTimeLeft:
		return 5000
	}
	return 0
}

func (h *nativeHost) header(name string, index int) (string, bool) {
	for _, f := range h.fields {
		if strings.EqualFold(f.Name, name) {
			if index == 0 {
				return f.Value, true
			}
			index--
		}
	}
	return "", false
}

func (h *nativeHost) config(key string) (string, bool) {
	if key != "" {
		value, ok := h.in.Config[key]
		return value, ok
	}
	if h.in.Config == nil {
		return "{}", true
	}
	text, err := json.Marshal(h.in.Config)
	return string(text), err == nil
}

// refuse notes the first refusal; from then on OK counts as Retry.
func (h *nativeHost) refuse(call string, rc Errno) Errno {
	if h.failed == "" {
		h.failed = (&CallError{call, rc}).Error()
	}
	return rc
}

func (h *nativeHost) emit(subject string, data []byte) Errno {
	header, size := h.pending, h.pendingBytes+len(subject)+len(data)
	h.pending, h.pendingBytes = nil, 0
	if rc := h.mayEmit(subject, size); rc != 0 {
		return h.refuse("emit to "+quoteSubject(subject), rc)
	}
	h.staged += size
	h.out.Outputs = append(h.out.Outputs, Output{Subject: subject, Header: header, Data: slices.Clone(data)})
	return 0
}

func (h *nativeHost) mayEmit(subject string, size int) Errno {
	switch {
	case subject == "" && h.in.NoTo:
		return ErrInvalid
	case subject != "" && !validSubject(subject):
		return ErrInvalid
	case reservedSubject(subject):
		return ErrNotAllowed
	case subject != "" && !h.allowed(subject):
		return ErrNotAllowed
	case len(h.out.Outputs) >= maxOutputs || h.staged+size > maxOutputBytes:
		return ErrLimit
	}
	return 0
}

func (h *nativeHost) allowed(subject string) bool {
	return h.in.Publish == nil || slices.ContainsFunc(h.in.Publish, func(filter string) bool {
		return matchSubject(filter, subject)
	})
}

func (h *nativeHost) emitHeader(name, value string) Errno {
	call := "add header " + strconv.Quote(name)
	size := len(name) + len(value)
	switch {
	case !validHeaderName(name):
		return h.refuse(call, ErrInvalid)
	case reservedHeader(name):
		return h.refuse(call, ErrNotAllowed)
	case strings.ContainsAny(value, "\r\n\x00"):
		return h.refuse(call, ErrInvalid)
	case len(h.pending) >= maxHeaders || h.staged+h.pendingBytes+size > maxOutputBytes:
		return h.refuse(call, ErrLimit)
	}
	h.pending = append(h.pending, Field{name, value})
	h.pendingBytes += size
	return 0
}

func (h *nativeHost) delay(ms uint32) {
	h.out.Delay = min(time.Duration(ms)*time.Millisecond, maxDelay)
	h.out.Delayed = true
}

func (h *nativeHost) log(level Level, text string) {
	if len(h.out.Log) >= maxLogLines || h.logBytes+len(text) > maxLogBytes {
		return
	}
	h.logBytes += len(text)
	h.out.Log = append(h.out.Log, LogLine{level, text})
}

// outcome ends the call as the host does: outputs exist only for OK, and OK
// does not stand once an emit failed.
func (h *nativeHost) outcome(verdict Verdict) Outcome {
	h.out.Verdict = verdict
	if verdict == VerdictOK && h.failed != "" {
		h.out.Verdict, h.out.Reason = VerdictRetry, headerSafe(h.failed)
	}
	if h.out.Verdict != VerdictOK {
		h.out.Outputs = nil
	}
	return h.out
}

// reset readies the host for the same input again, keeping its memory.
func (h *nativeHost) reset() {
	h.out = Outcome{Outputs: h.out.Outputs[:0], Log: h.out.Log[:0]}
	h.pending, h.pendingBytes, h.staged, h.logBytes, h.failed = nil, 0, 0, 0, ""
}
