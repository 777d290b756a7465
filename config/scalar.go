package config

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mqrun/mqrun/subject"
)

// badValue is why a text is no value of its kind, and what may be meant.
type badValue struct{ message, hint string }

func (b *badValue) Error() string { return b.message }

func bad(hint, format string, args ...any) error {
	return &badValue{fmt.Sprintf(format, args...), hint}
}

// scalar reads one value from its text. It is the same for files, environment
// and command line, so all three agree on what is a value.
type scalar func(text string) (any, error)

// text is any line of printable characters; empty only when it says so.
func text(s string) (any, error) {
	if s == "" {
		return nil, bad("", "is empty")
	}
	return line(s)
}

func line(s string) (any, error) {
	if len(s) > 4096 || strings.ContainsFunc(s, unicode.IsControl) {
		return nil, bad("", "must be one line of at most 4096 bytes")
	}
	return s, nil
}

func oneOf(words ...string) scalar {
	return func(s string) (any, error) {
		for _, w := range words {
			if prefix, open := strings.CutSuffix(w, "*"); s == w || open && len(s) > len(prefix) && strings.HasPrefix(s, prefix) {
				return s, nil
			}
		}
		return nil, bad(nearest(s, words), "%s is not one of: %s", quote(s), strings.Join(words, ", "))
	}
}

// order is none, or which messages come one after the other.
func order(s string) (any, error) {
	name, isHeader := strings.CutPrefix(s, OrderHeader)
	if !isHeader {
		return oneOf("none", OrderStrict, OrderSubject, OrderHeader+"*")(s)
	}
	switch {
	case name == "" || len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }):
		return nil, bad("", "%s names no header, such as header:Customer", quote(s))
	case len(name) >= 6 && strings.EqualFold(name[:6], "mqrun-"):
		return nil, bad("", "%s: headers that begin with Mqrun- are the host's own", quote(s))
	}
	return s, nil
}

func boolean(s string) (any, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	hint := map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}[strings.ToLower(s)]
	return nil, bad(hint, "%s is not true or false", quote(s))
}

func onOff(s string) (any, error) {
	switch s {
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	}
	return nil, bad("", "%s is not on or off", quote(s))
}

var digits = regexp.MustCompile(`^[0-9]+$`)

func integer(low, high int64) scalar {
	return func(s string) (any, error) {
		n, err := whole(s)
		if err != nil {
			return nil, err
		}
		if n < low || n > high {
			return nil, bad("", "%s is out of range; from %d to %d", quote(s), low, high)
		}
		return n, nil
	}
}

// whole reads a whole number without sign, fraction, exponent, separators or
// leading zeros.
func whole(s string) (int64, error) {
	switch {
	case s == "":
		return 0, bad("", "is empty; write a whole number")
	case strings.HasPrefix(s, "-"):
		return 0, bad("", "%s must not be negative", quote(s))
	case !digits.MatchString(s):
		return 0, bad("", "%s is not a whole number", quote(s))
	case len(s) > 1 && s[0] == '0':
		return 0, bad(strings.TrimLeft(s[:len(s)-1], "0")+s[len(s)-1:], "%s is not a whole number", quote(s))
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, bad("", "%s is too large", quote(s))
	}
	return n, nil
}

// percent is a share such as 10%, as a number from 0 to 1.
func percent(s string) (any, error) {
	n, ok := strings.CutSuffix(s, "%")
	v, err := number(0.1, 100)(n)
	if !ok || err != nil {
		hint := ""
		if v, err := number(0.1, 100)(s); err == nil && !ok {
			hint = strconv.FormatFloat(v.(float64), 'f', -1, 64) + "%"
		}
		return nil, bad(hint, "%s is not a share from 0.1%% to 100%%", quote(s))
	}
	return v.(float64) / 100, nil
}

var decimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

func number(low, high float64) scalar {
	return func(s string) (any, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !decimal.MatchString(s) {
			return nil, bad("", "%s is not a number such as 2 or 0.5", quote(s))
		}
		if f < low || f > high {
			return nil, bad("", "%s is out of range; from %v to %v", quote(s), low, high)
		}
		return f, nil
	}
}

func duration(low, high time.Duration) scalar {
	return func(s string) (any, error) {
		switch {
		case s == "":
			return nil, bad("", "is empty; write a duration such as 30s")
		case strings.HasPrefix(s, "-"):
			return nil, bad("", "%s must not be negative", quote(s))
		case decimal.MatchString(s) && (low == 0 || strings.Trim(s, "0.") != ""):
			return nil, bad(s+"s", "%s has no unit", quote(s))
		}
		if days, ok := strings.CutSuffix(s, "d"); ok {
			if n, err := whole(days); err == nil && n < 10000 {
				return nil, bad(strconv.FormatInt(n*24, 10)+"h", "%s: the largest unit is h", quote(s))
			}
		}
		d, err := time.ParseDuration(s) // takes a bare 0
		if err != nil || s[0] == '+' {
			return nil, bad("", "%s is not a duration such as 500ms, 30s or 1h30m", quote(s))
		}
		if d < low || d > high {
			return nil, bad("", "%s is out of range; from %s to %s", quote(s), span(low), span(high))
		}
		return d, nil
	}
}

// span writes a duration without its empty parts: 24h, not 24h0m0s.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

var units = []struct {
	name  string
	bytes int64
}{{"GiB", gib}, {"MiB", mib}, {"KiB", kib}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}

func size(low, high int64) scalar {
	return func(s string) (any, error) {
		n, err := byteCount(s)
		if err != nil {
			return nil, err
		}
		if n < low || n > high {
			return nil, bad("", "%s is out of range; from %s to %s", quote(s), sizeText(low), sizeText(high))
		}
		return n, nil
	}
}

func byteCount(s string) (int64, error) {
	head := strings.TrimRightFunc(s, unicode.IsLetter)
	unit := s[len(head):]
	number := strings.TrimSpace(head)
	_, err := whole(number)
	switch {
	case s == "":
		return 0, bad("", "is empty; write a size such as 64MiB")
	case strings.HasPrefix(s, "-"):
		return 0, bad("", "%s must not be negative", quote(s))
	case unit == "" && err == nil:
		return 0, bad(s+"B", "%s has no unit; the units are B, KB, MB, GB, KiB, MiB, GiB", quote(s))
	case err != nil:
		return 0, bad("", "%s is not a size: a whole number with B, KB, MB, GB, KiB, MiB or GiB", quote(s))
	}
	for _, u := range units {
		if unit != u.name || number != head {
			continue
		}
		n, _ := whole(number)
		if n > math.MaxInt64/u.bytes {
			return 0, bad("", "%s is too large", quote(s))
		}
		return n * u.bytes, nil
	}
	hint := ""
	for _, u := range units {
		if strings.EqualFold(unit, u.name) || strings.EqualFold(unit, u.name[:1]) && u.bytes > 1 && hint == "" {
			hint = number + u.name
		}
	}
	return 0, bad(hint, "%s: the units are B, KB, MB, GB, KiB, MiB, GiB", quote(s))
}

func sizeText(n int64) string {
	for _, u := range units {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

func concrete(s string) (any, error) {
	if err := subject.Valid(s); err != nil {
		return nil, bad("", "%s", err)
	}
	return s, nil
}

func filter(s string) (any, error) {
	if err := subject.ValidFilter(s); err != nil {
		return nil, bad("", "%s", err)
	}
	return s, nil
}

// bucket is the name of a KV bucket. mqrun's own are no guest's.
func bucket(s string) (any, error) {
	if strings.HasPrefix(s, "MQRUN") {
		return nil, bad("", "the bucket %s is mqrun's own", quote(s))
	}
	if err := checkName(s, maxName, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", "letters, digits, _ and -"); err != nil {
		return nil, bad("", "%s", err)
	}
	return s, nil
}

var envNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// envName is the name of an environment variable.
func envName(s string) (any, error) {
	if len(s) > maxStreamName || !envNames.MatchString(s) {
		return nil, bad("", "%s is not the name of an environment variable", quote(s))
	}
	return s, nil
}

func deadLetter(s string) (any, error) {
	if s == DeadLetterNone {
		return s, nil
	}
	return concrete(s)
}

func syncPolicy(s string) (any, error) {
	if s == "always" {
		return Sync{Always: true}, nil
	}
	d, err := duration(time.Millisecond, time.Hour)(s)
	if err != nil {
		return nil, bad(nearest(s, []string{"always"}), `%s is not "always" or a duration from 1ms to 1h`, quote(s))
	}
	return Sync{Interval: d.(time.Duration)}, nil
}

func startPolicy(s string) (any, error) {
	if s == "all" || s == "new" {
		return Start{Policy: s}, nil
	}
	if n, err := whole(s); err == nil && n > 0 {
		return Start{Policy: "sequence", Sequence: uint64(n)}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return Start{Policy: "time", Time: t.UTC()}, nil
	}
	return nil, bad(nearest(s, []string{"all", "new"}), "%s is not all, new, a stream sequence from 1 or a time such as 2026-01-31T00:00:00Z", quote(s))
}

var hexSum = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

func sha256Sum(s string) (any, error) {
	if !hexSum.MatchString(s) {
		return nil, bad("", "must be 64 hexadecimal digits")
	}
	return strings.ToLower(s), nil
}

// token is a secret: its text is never part of a message.
func token(s string) (any, error) {
	if s == "" {
		return nil, bad("", "is empty; leave the key out and a token is made, or write none")
	}
	if len(s) > 1024 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, bad("", "must be at most 1024 printable ASCII characters without blanks")
	}
	return s, nil
}

// listen is host:port, or empty for no listener.
func listen(s string) (any, error) {
	if s == "" {
		return s, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		hint := ""
		if digits.MatchString(s) {
			hint = "127.0.0.1:" + s
		}
		return nil, bad(hint, "%s is not host:port", quote(s))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return nil, bad("", "%s: the port must be a number from 0 to 65535", quote(s))
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' || r == '@' || r > '~' }) {
		return nil, bad("", "%s is not host:port", quote(s))
	}
	return s, nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

func localPath(s string) (any, error) {
	if v, err := text(s); err != nil {
		return v, err
	}
	if filepath.IsAbs(s) {
		return nil, bad("", "%s is absolute; a module lies under the config's folder", quote(s))
	}
	if !filepath.IsLocal(s) {
		return nil, bad("", "%s leaves the config's folder", quote(s))
	}
	return s, nil
}

func quote(s string) string {
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return strconv.Quote(s)
}
