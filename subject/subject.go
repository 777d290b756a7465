// Package subject is the algebra of NATS subjects: which ones are valid, which
// a filter matches, which two can meet.
//
// # Caveats
//
// The rules are stricter than the server's, which stores a publish to
// "orders.*" under that literal name: here a concrete subject never holds a
// wildcard, blank or control character.
package subject

import (
	"fmt"
	"strings"
	"unicode"
)

// MaxLen is the longest subject accepted, in bytes. The server's own limit is
// its control line (4 KiB), which also holds the reply subject and sizes.
const MaxLen = 1024

// Valid reports why s cannot be published to, or nil.
func Valid(s string) error { return check(s, false) }

// ValidFilter reports why s cannot be subscribed to, or nil.
func ValidFilter(s string) error { return check(s, true) }

func check(s string, wild bool) error {
	switch {
	case s == "":
		return fmt.Errorf("subject is empty")
	case len(s) > MaxLen:
		return fmt.Errorf("subject has %d bytes; the limit is %d", len(s), MaxLen)
	}
	for _, r := range s {
		if r == unicode.ReplacementChar || r <= ' ' || r == 0x7f || unicode.IsSpace(r) || unicode.IsControl(r) {
			return fmt.Errorf("subject %q holds a blank, control or invalid character", s)
		}
	}
	for rest, more := s, true; more; {
		var tok string
		tok, rest, more = strings.Cut(rest, ".")
		switch {
		case tok == "":
			return fmt.Errorf("subject %q has an empty token", s)
		case !wild && (tok == "*" || tok == ">"):
			return fmt.Errorf("subject %q holds the wildcard %q; name one subject", s, tok)
		case tok == ">" && more:
			return fmt.Errorf("subject %q: the wildcard \">\" must be the last token", s)
		}
	}
	return nil
}

// Literal reports whether s holds no wildcard token.
func Literal(s string) bool {
	for rest, more := s, true; more; {
		var tok string
		tok, rest, more = strings.Cut(rest, ".")
		if tok == "*" || tok == ">" {
			return false
		}
	}
	return true
}

// Match reports whether the filter matches the concrete subject s.
func Match(filter, s string) bool { return Covers(filter, s) }

// Covers reports whether every subject that b matches is matched by a.
func Covers(a, b string) bool {
	for {
		ta, ra, ma := strings.Cut(a, ".")
		tb, rb, mb := strings.Cut(b, ".")
		switch {
		case ta == ">":
			return true
		case tb == ">", ta != "*" && ta != tb:
			return false
		case ma != mb:
			return false
		case !ma:
			return true
		}
		a, b = ra, rb
	}
}

// Overlap reports whether some subject is matched by both a and b.
func Overlap(a, b string) bool {
	for {
		ta, ra, ma := strings.Cut(a, ".")
		tb, rb, mb := strings.Cut(b, ".")
		switch {
		case ta == ">" || tb == ">":
			return true
		case ta != "*" && tb != "*" && ta != tb:
			return false
		case ma != mb:
			return false
		case !ma:
			return true
		}
		a, b = ra, rb
	}
}

// Reserved reports whether a subject or filter can reach what belongs to the
// server or to mqrun itself: `$*`, `_INBOX.>` and `mqrun.>`. Guests and users
// may not publish there.
func Reserved(s string) bool {
	first, _, _ := strings.Cut(s, ".")
	switch first {
	case "*", ">", "_INBOX", "mqrun":
		return true
	}
	return strings.HasPrefix(s, "$")
}
