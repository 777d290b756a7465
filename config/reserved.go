package config

import (
	"fmt"
	"strings"

	"github.com/mqrun/mqrun/subject"
)

// What MQRUN and MQRUN_DLQ always hold.
const (
	ingest      = "ingest.>"
	deadLetters = "dlq.>"
)

const belongs = " belongs to the server or to mqrun ($*, _INBOX.>, mqrun.>), or can reach it"

// reserved checks every subject by itself. One that may not be there is
// emptied after its problem, so that it makes no others with its neighbours.
func (l *loader) reserved(c *Config) {
	for _, name := range sorted(c.Pipelines) {
		p := c.Pipelines[name]
		if why := deadLetterAt(p.DeadLetter); why != "" {
			l.complain("", quote(p.DeadLetter)+why, "pipelines", name, "dead_letter")
			p.DeadLetter = ""
		}
		l.each(p.From, input, "pipelines", name, "from")
	}
	for _, name := range sorted(c.Pipelines) {
		p := c.Pipelines[name]
		if why := c.output(p.To); why != "" {
			l.complain("", quote(p.To)+why, "pipelines", name, "to")
			p.To = ""
		}
	}
	for _, name := range sorted(c.Plugins) {
		l.each(c.Plugins[name].Allow.Publish, c.output, "plugins", name, "allow", "publish")
	}
	for _, name := range sorted(c.Streams) {
		l.each(c.Streams[name].Subjects, stored, "streams", name, "subjects")
	}
}

func (l *loader) each(subjects []string, why func(string) string, path ...string) {
	for i, s := range subjects {
		if s == "" {
			continue
		}
		if w := why(s); w != "" {
			l.complain("", quote(s)+w, l.item(i, path...)...)
			subjects[i] = ""
		}
	}
}

func input(s string) string {
	switch first, _, _ := strings.Cut(s, "."); {
	case first == "*" || first == ">":
		return " begins with a wildcard, which takes in what belongs to the server and to mqrun; name the first token, or put the subjects into one stream with streams: and read those"
	case subject.Reserved(s):
		return belongs
	}
	return ""
}

func deadLetterAt(s string) string {
	switch {
	case s == "" || s == DeadLetterNone:
	case subject.Reserved(s):
		return belongs
	case subject.Match(ingest, s):
		return fmt.Sprintf(" is under %q, which MQRUN holds; dead letters go to MQRUN_DLQ", ingest)
	}
	return ""
}

func stored(s string) string {
	switch {
	case subject.Reserved(s):
		return belongs
	case subject.Overlap(s, ingest):
		return fmt.Sprintf(" overlaps %q, which MQRUN holds", ingest)
	case subject.Overlap(s, deadLetters):
		return fmt.Sprintf(" overlaps %q, which MQRUN_DLQ holds", deadLetters)
	}
	return ""
}

// output is why guests may not publish to s.
func (c *Config) output(s string) string {
	switch {
	case s == "":
		return ""
	case subject.Reserved(s):
		return belongs
	case subject.Overlap(s, ingest):
		return fmt.Sprintf(" reaches %q, where messages come in from outside; results in the same stream would lock it once it is full", ingest)
	case subject.Overlap(s, deadLetters):
		return fmt.Sprintf(" reaches %q, which holds the dead letters", deadLetters)
	}
	for _, name := range sorted(c.Pipelines) {
		if d := c.Pipelines[name].DeadLetter; d != "" && d != DeadLetterNone && subject.Match(s, d) {
			return fmt.Sprintf(" reaches %s, the dead letters of %q", quote(d), name)
		}
	}
	return ""
}
