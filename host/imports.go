package host

import (
	"bytes"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"
)

// importFuncs binds the functions of mqrun_v1 to what they do.
func importFuncs() []hostFunc {
	run := map[string]func(*call, api.Memory, []uint64){
		"input":       input,
		"meta":        meta,
		"meta_i64":    metaInt,
		"header":      header,
		"headers":     headers,
		"config":      config,
		"emit":        emit,
		"emit_header": emitHeader,
		"reason":      reason,
		"retry_after": retryAfter,
		"log":         logLine,
		"kv_get":      kvGet,
		"kv_revision": kvRevision,
		"kv_put":      kvPut,
		"kv_create":   kvCreate,
		"kv_update":   kvUpdate,
		"kv_delete":   kvDelete,
	}
	fs := make([]hostFunc, 0, len(run))
	for _, f := range Imports() {
		fs = append(fs, hostFunc{Func: f, run: run[f.Name]})
	}
	return fs
}

// errno in the form in which it lies on the stack.
func errno(e int32) uint64 { return uint64(uint32(e)) }

func input(c *call, mem api.Memory, s []uint64) {
	var data []byte
	if c.msg != nil {
		data = c.msg.Data
	}
	s[0] = c.give(mem, data, uint32(s[0]), uint32(s[1]))
}

func meta(c *call, mem api.Memory, s []uint64) {
	m := c.msg
	if m == nil {
		m = &Message{}
	}
	var v string
	switch uint32(s[0]) {
	case MetaSubject:
		v = m.Subject
	case MetaStream:
		v = m.Stream
	case MetaPipeline:
		v = m.Pipeline
	case MetaPlugin:
		v = c.plugin.settings.Name
	default:
		s[0] = errno(ErrnoAbsent)
		return
	}
	s[0] = c.giveString(mem, v, uint32(s[1]), uint32(s[2]))
}

func metaInt(c *call, _ api.Memory, s []uint64) {
	m := c.msg
	if m == nil {
		m = &Message{}
	}
	var v int64
	switch uint32(s[0]) {
	case MetaSequence:
		v = int64(m.Sequence)
	case MetaAttempt:
		v = int64(m.Attempt)
	case MetaAttempts:
		v = int64(m.MaxAttempts)
	case MetaTime:
		if !m.Time.IsZero() {
			v = m.Time.UnixNano()
		}
	case MetaPending:
		v = int64(m.Pending)
	case MetaMillisLeft:
		v = max(0, c.left().Milliseconds())
	default:
		v = int64(ErrnoAbsent)
	}
	s[0] = uint64(v)
}

// hidden names are the server's and ours; guests neither see nor set them.
func hidden[T string | []byte](name T) bool {
	return foldPrefix(name, "nats-") || foldPrefix(name, "mqrun-")
}

// foldPrefix is ASCII case-insensitive; prefix is in lower case.
func foldPrefix[T string | []byte](s T, prefix string) bool {
	return len(s) >= len(prefix) && foldEqual(s[:len(prefix)], prefix)
}

func foldEqual[T string | []byte](a T, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(b) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}

func header(c *call, mem api.Memory, s []uint64) {
	name, index := c.view(mem, uint32(s[0]), uint32(s[1])), uint32(s[2])
	v, ok := c.header(name, index)
	if !ok {
		s[0] = errno(ErrnoAbsent)
		return
	}
	s[0] = c.giveString(mem, v, uint32(s[3]), uint32(s[4]))
}

func (c *call) header(name []byte, index uint32) (string, bool) {
	if c.msg == nil || hidden(name) {
		return "", false
	}
	values, others := c.msg.Header[string(name)], 0
	for k := range c.msg.Header {
		if len(k) == len(name) && k != string(name) && foldEqual(name, k) {
			others++
		}
	}
	if others > 0 { // spelt in several ways, or in another way than asked for
		values = nil
		for _, k := range sortedKeys(c.msg.Header) {
			if foldEqual(name, k) {
				values = append(values, c.msg.Header[k]...)
			}
		}
	}
	if int64(index) >= int64(len(values)) {
		return "", false
	}
	return values[index], true
}

func sortedKeys(h map[string][]string) []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func headers(c *call, mem api.Memory, s []uint64) {
	if !c.headersMade {
		c.headers, c.headersMade = c.headers[:0], true
		if c.msg != nil && len(c.msg.Header) > 0 {
			for _, k := range sortedKeys(c.msg.Header) {
				if hidden(k) {
					continue
				}
				for _, v := range c.msg.Header[k] {
					c.headers = append(append(append(append(c.headers, k...), ": "...), v...), "\r\n"...)
				}
			}
		}
	}
	s[0] = c.give(mem, c.headers, uint32(s[0]), uint32(s[1]))
}

func config(c *call, mem api.Memory, s []uint64) {
	key := c.view(mem, uint32(s[0]), uint32(s[1]))
	if len(key) == 0 {
		s[0] = c.give(mem, c.plugin.config, uint32(s[2]), uint32(s[3]))
		return
	}
	v, ok := c.plugin.settings.Config[string(key)]
	if !ok {
		s[0] = errno(ErrnoAbsent)
		return
	}
	s[0] = c.giveString(mem, v, uint32(s[2]), uint32(s[3]))
}

func reason(c *call, mem api.Memory, s []uint64) {
	c.res.Reason = headerSafe(c.view(mem, uint32(s[0]), uint32(s[1])), c.plugin.settings.Limits.ReasonBytes)
}

// headerSafe makes one line of at most n bytes out of anything.
func headerSafe(b []byte, n int) string {
	b = bytes.TrimSpace(b[:min(len(b), 4*n)])
	var out strings.Builder
	blank := false
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		b = b[size:]
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			blank = true
			continue
		}
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		gap := 0
		if blank && out.Len() > 0 {
			gap = 1
		}
		if out.Len()+gap+utf8.RuneLen(r) > n {
			break
		}
		if gap == 1 {
			out.WriteByte(' ')
		}
		blank = false
		out.WriteRune(r)
	}
	return out.String()
}

func retryAfter(c *call, _ api.Memory, s []uint64) {
	c.res.RetryAfter = time.Duration(min(uint32(s[0]), MaxRetryAfterMillis)) * time.Millisecond
	c.res.RetrySet = true
}

func logLine(c *call, mem api.Memory, s []uint64) {
	c.look() // escaping a line takes longer than most of what guests may ask for
	levels := []slog.Level{LogDebug: slog.LevelDebug, LogInfo: slog.LevelInfo, LogWarn: slog.LevelWarn, LogError: slog.LevelError}
	level := slog.LevelError
	if n := uint32(s[0]); n < uint32(len(levels)) {
		level = levels[n]
	}
	line := c.view(mem, uint32(s[1]), uint32(s[2]))
	cut := max(0, len(line)-MaxLogLine)
	c.log.add(c, level, "log", bytes.TrimRight(line[:len(line)-cut], "\r\n"), cut)
}

const separators = `"(),/:;<=>?@[\]{}`

// validName reports whether a header name can be sent: the client library
// refuses separators, and what it refuses could never be published.
func validName(b []byte) bool {
	return len(b) > 0 && !slices.ContainsFunc(b, func(ch byte) bool { return ch <= ' ' || ch >= 0x7f || strings.IndexByte(separators, ch) >= 0 })
}
