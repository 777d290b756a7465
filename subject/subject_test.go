package subject_test

import (
	"strings"
	"testing"

	"github.com/mqrun/mqrun/subject"
)

func TestValid(t *testing.T) {
	for s, want := range map[string]string{
		"a": "", "a.b": "", "orders.é": "", "a.b*": "", "*a": "",
		"": "empty", "a..b": "empty token", ".a": "empty token", "a.": "empty token", "a b": "blank", "a\r\nb": "blank",
		"a.\x01": "control", "\xff": "invalid", "a.*": "wildcard", ">": "wildcard", strings.Repeat("x", 2000): "limit",
	} {
		err := subject.Valid(s)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Valid(%q) = %v; want %q", s, err, want)
		}
	}
	for s, ok := range map[string]bool{"a.*": true, ">": true, "a.>": true, "a.>.b": false, "*.*": true, "a. ": false} {
		if err := subject.ValidFilter(s); (err == nil) != ok {
			t.Errorf("ValidFilter(%q) = %v; want ok %v", s, err, ok)
		}
	}
}

func TestRelations(t *testing.T) {
	for _, tt := range []struct {
		a, b            string
		covers, overlap bool
	}{
		{"a.b", "a.b", true, true},
		{"a.*", "a.b", true, true},
		{"a.*", "a.b.c", false, false},
		{"a.>", "a.b.c", true, true},
		{"a.>", "a", false, false},
		{"a.>", "a.*", true, true},
		{"a.*", "a.>", false, true},
		{"*.b", "a.*", false, true},
		{"*.b", "a.c", false, false},
		{">", "a.b", true, true},
		{"a.b", "a.c", false, false},
		{"a.*.c", "a.b.>", false, true},
		{"a.b*", "a.bc", false, false},
	} {
		if got := subject.Covers(tt.a, tt.b); got != tt.covers {
			t.Errorf("Covers(%q, %q) = %v", tt.a, tt.b, got)
		}
		if got := subject.Overlap(tt.a, tt.b); got != tt.overlap {
			t.Errorf("Overlap(%q, %q) = %v", tt.a, tt.b, got)
		}
		if got := subject.Overlap(tt.b, tt.a); got != tt.overlap {
			t.Errorf("Overlap(%q, %q) = %v", tt.b, tt.a, got)
		}
	}
}

func TestReserved(t *testing.T) {
	for s, want := range map[string]bool{
		"$JS.API.X": true, "$SYS.>": true, "_INBOX.a": true, "mqrun.X": true, ">": true, "*.a": true,
		"orders.>": false, "mqrunner": false, "_INBOXES": false,
	} {
		if got := subject.Reserved(s); got != want {
			t.Errorf("Reserved(%q) = %v", s, got)
		}
	}
}
