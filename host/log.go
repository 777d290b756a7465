package host

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// guestLog takes what a guest logs and prints in one call: whole lines, escaped,
// up to the limits, to the logger; the end of it into the Result.
type guestLog struct {
	lines   int
	bytes   int64
	dropped int
	partial [2][]byte // of stdout and stderr: a line that has not ended
	cut     [2]int    // bytes of it beyond MaxLogLine
	stderr  []byte    // the last of it, raw
	line    []byte    // scratch
	res     *Result
}

func (g *guestLog) begin(res *Result) {
	g.lines, g.bytes, g.dropped, g.res = 0, 0, 0, res
	g.stderr = g.stderr[:0]
	for i := range g.partial {
		g.partial[i], g.cut[i] = g.partial[i][:0], 0
	}
}

// end logs unfinished lines and what had to be dropped.
func (g *guestLog) end(c *call) {
	for i := range g.partial {
		if len(g.partial[i]) > 0 {
			g.flush(c, i)
		}
	}
	if g.dropped > 0 {
		c.logTo(slog.LevelWarn, "", fmt.Sprintf("%d lines dropped (limits.log_lines, limits.log_bytes)", g.dropped))
	}
	g.res = nil
}

// write takes a piece of stdout (0) or stderr (1).
func (g *guestLog) write(c *call, stream int, b []byte) {
	if stream == 1 {
		g.stderr = tail(append(g.stderr, b[max(0, len(b)-MaxPanicText):]...), MaxPanicText)
	}
	for len(b) > 0 {
		line, rest, ended := b, []byte(nil), false
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, rest, ended = b[:i], b[i+1:], true
		}
		room := MaxLogLine - len(g.partial[stream])
		n := min(len(line), room)
		g.partial[stream] = append(g.partial[stream], line[:n]...)
		g.cut[stream] += len(line) - n
		if ended {
			g.flush(c, stream)
		}
		b = rest
	}
}

func (g *guestLog) flush(c *call, stream int) {
	source := "stdout"
	if stream == 1 {
		source = "stderr"
	}
	line, cut := bytes.TrimSuffix(g.partial[stream], []byte("\r")), g.cut[stream]
	g.partial[stream], g.cut[stream] = g.partial[stream][:0], 0
	g.add(c, slog.LevelInfo, source, line, cut)
}

// add takes one line.
func (g *guestLog) add(c *call, level slog.Level, source string, line []byte, cut int) {
	if len(line) > MaxLogLine {
		line, cut = line[:MaxLogLine], cut+len(line)-MaxLogLine
	}
	l := c.plugin.settings.Limits
	if g.lines >= l.LogLines && len(line) > MaxLogTail { // it will be dropped, but for its end in the tail
		line = line[len(line)-MaxLogTail:]
	}
	g.line = escape(g.line[:0], line)
	if cut > 0 {
		g.line = fmt.Appendf(g.line, "... (%d more bytes)", cut)
	}
	if g.res != nil {
		g.res.Log = tail(append(append(g.res.Log, g.line...), '\n'), MaxLogTail)
	}
	if g.lines >= l.LogLines || g.bytes+int64(len(g.line)) > l.LogBytes {
		g.dropped++
		return
	}
	g.lines++
	g.bytes += int64(len(g.line))
	if c.plugin.runtime.logger.Enabled(context.Background(), level) {
		c.logTo(level, source, string(g.line))
	}
}

// panicText is the end of what the guest wrote to stderr in this call.
func (g *guestLog) panicText() string {
	return string(bytes.ToValidUTF8(bytes.TrimSpace(g.stderr), []byte("\ufffd")))
}

// logTo tags a line with plugin, pipeline, step and message.
func (c *call) logTo(level slog.Level, source, line string) {
	attrs := make([]slog.Attr, 0, 6)
	attrs = append(attrs, slog.String("plugin", c.plugin.settings.Name))
	if source != "" {
		attrs = append(attrs, slog.String("source", source))
	}
	if m := c.msg; m != nil {
		if m.Pipeline != "" {
			attrs = append(attrs, slog.String("pipeline", m.Pipeline))
		}
		if m.Stream != "" {
			attrs = append(attrs, slog.String("stream", m.Stream))
		}
		attrs = append(attrs, slog.Uint64("sequence", m.Sequence), slog.Int("attempt", m.Attempt))
	}
	c.plugin.runtime.logger.LogAttrs(context.Background(), level, line, attrs...)
}

// tail keeps the last n bytes of b.
func tail(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	return b[:copy(b, b[len(b)-n:])]
}

// escape appends src on one line: what is not printable comes as in a Go string.
func escape(dst, src []byte) []byte {
	for len(src) > 0 {
		r, n := utf8.DecodeRune(src)
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, src[0])
		case r == '\t':
			dst = append(dst, '\t')
		case unicode.IsPrint(r):
			dst = append(dst, src[:n]...)
		default:
			at := len(dst)
			dst = strconv.AppendQuoteRune(dst, r)
			dst = append(dst[:at], dst[at+1:len(dst)-1]...) // without the quotes
		}
		src = src[n:]
	}
	return dst
}
