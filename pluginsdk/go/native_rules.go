//go:build !wasip1

package mqrun

import (
	"strconv"
	"strings"
	"unicode"
)

func reservedHeader(name string) bool {
	for _, prefix := range []string{"nats-", "mqrun-"} {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

func validHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) })
}

// reservedSubject is what no plugin may publish to, whatever its allow.publish says.
func reservedSubject(subject string) bool {
	return strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.") ||
		subject == "mqrun" || strings.HasPrefix(subject, "mqrun.") || strings.HasPrefix(subject, "dlq.")
}

func validSubject(subject string) bool {
	if strings.ContainsFunc(subject, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" {
			return false
		}
	}
	return true
}

func matchSubject(filter, subject string) bool {
	for {
		f, filterRest, moreFilter := strings.Cut(filter, ".")
		s, subjectRest, moreSubject := strings.Cut(subject, ".")
		switch {
		case f == ">":
			return true
		case f != "*" && f != s, moreFilter != moreSubject:
			return false
		case !moreFilter:
			return true
		}
		filter, subject = filterRest, subjectRest
	}
}

func quoteSubject(subject string) string {
	if subject == "" {
		return "the next step"
	}
	return strconv.Quote(subject)
}

// headerSafe makes a reason fit for a header's value: one line, cut at 1 KiB
// between two runes.
func headerSafe(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}
