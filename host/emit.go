package host

import (
	"bytes"
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/mqrun/mqrun/subject"
)

// refuse notes the first emit that failed; from then on OK counts as Retry.
func (c *call) refuse(code int32, format string, args ...any) uint64 {
	if c.res.EmitFailed == "" {
		c.res.EmitFailed = EmitFailed
		switch code {
		case ErrnoNotAllowed:
			c.res.EmitFailed = EmitForbidden
		case ErrnoLimit:
			c.res.EmitFailed = ReasonLimit
		}
		c.res.EmitError = c.fn + ": " + fmt.Sprintf(format, args...)
	}
	return errno(code)
}

func emitHeader(c *call, mem api.Memory, s []uint64) {
	name := c.view(mem, uint32(s[0]), uint32(s[1]))
	value := c.view(mem, uint32(s[2]), uint32(s[3]))
	l := c.plugin.settings.Limits
	size := int64(len(name) + len(value))
	switch {
	case c.msg == nil:
		s[0] = errno(ErrnoInvalid)
		return
	case !validName(name):
		s[0] = c.refuse(ErrnoInvalid, "%s is not a header name: use letters, digits and dashes", quote(name))
		return
	case hidden(name):
		s[0] = c.refuse(ErrnoNotAllowed, "%s: Nats-* and Mqrun-* headers are not a guest's to set", quote(name))
		return
	case bytes.ContainsAny(value, "\r\n\x00"):
		s[0] = c.refuse(ErrnoInvalid, "the value of %s holds a line break: a header value is one line", quote(name))
		return
	case c.pending >= MaxHeaders:
		s[0] = c.refuse(ErrnoLimit, "more than %d headers for one output", MaxHeaders)
		return
	case c.staged+c.pendingBytes+size > l.OutputBytes:
		s[0] = c.refuse(ErrnoLimit, "the outputs pass %s (limits.output_bytes)", bytesText(l.OutputBytes))
		return
	}
	c.res.fields = append(c.res.fields, Field{Name: c.intern(name), Value: string(value)})
	c.pending++
	c.pendingBytes += size
	s[0] = 0
}

func emit(c *call, mem api.Memory, s []uint64) {
	subj := c.view(mem, uint32(s[0]), uint32(s[1]))
	data := c.view(mem, uint32(s[2]), uint32(s[3]))
	if c.msg == nil {
		s[0] = errno(ErrnoInvalid)
		return
	}
	// The pending headers are this emit's, whatever becomes of it.
	end := len(c.res.fields)
	fields := c.res.fields[end-c.pending : end : end]
	size := c.pendingBytes + int64(len(subj)) + int64(len(data))
	c.pending, c.pendingBytes = 0, 0

	to, code, text := c.target(subj)
	l := c.plugin.settings.Limits
	switch {
	case code != 0:
		s[0] = c.refuse(code, "%s", text)
	case len(c.res.Outputs) >= l.Outputs:
		s[0] = c.refuse(ErrnoLimit, "more than %d outputs (limits.outputs)", l.Outputs)
	case c.staged+size > l.OutputBytes:
		s[0] = c.refuse(ErrnoLimit, "the outputs pass %s (limits.output_bytes)", bytesText(l.OutputBytes))
	default:
		c.staged += size
		if len(fields) == 0 {
			fields = nil
		}
		c.res.Outputs = append(c.res.Outputs, Output{Subject: to, Header: fields, Data: c.keep(data)})
		s[0] = 0
		return
	}
	c.res.fields = c.res.fields[:end-len(fields)]
}

// target checks where an emit wants to go.
func (c *call) target(b []byte) (to string, code int32, text string) {
	m := c.msg
	if len(b) == 0 {
		if m.Last && m.To == "" {
			return "", ErrnoInvalid, "no subject, and the pipeline has no to: name a subject"
		}
		return "", 0, ""
	}
	if len(b) > subject.MaxLen {
		return "", ErrnoInvalid, fmt.Sprintf("the subject has %d bytes; the limit is %d", len(b), subject.MaxLen)
	}
	to = c.intern(b)
	if err := subject.Valid(to); err != nil {
		return "", ErrnoInvalid, err.Error()
	}
	if subject.Reserved(to) {
		return "", ErrnoNotAllowed, fmt.Sprintf("subject %q is reserved", to)
	}
	for _, d := range m.Deny {
		if subject.Match(d, to) {
			return "", ErrnoNotAllowed, fmt.Sprintf("subject %q is a dead-letter subject", to)
		}
	}
	if to == m.To && to != "" {
		return to, 0, ""
	}
	for _, f := range c.plugin.settings.Publish {
		if subject.Match(f, to) {
			return to, 0, ""
		}
	}
	return "", ErrnoNotAllowed, fmt.Sprintf("subject %q is not allowed (plugins.%s.allow.publish)", to, c.plugin.settings.Name)
}

// quote shows the guest's bytes in an error, cut short.
func quote(b []byte) string {
	if len(b) > 64 {
		return fmt.Sprintf("%q...", b[:64])
	}
	return fmt.Sprintf("%q", b)
}
