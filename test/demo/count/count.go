package count

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Result is what was found, and how it differs from what was expected.
type Result struct {
	Inputs, Parsed, Minor, Strong, Major, Alerts, Filtered, Dead int
	Reasons                                                      map[string]int // of the dead letters, by Mqrun-Reason

	Lost       []string // expected, not found
	Duplicates []string // found twice
	Unexpected []string // found where it has no business, or under another id
}

// OK reports whether every set is as expected.
func (r *Result) OK() bool { return len(r.Lost)+len(r.Duplicates)+len(r.Unexpected) == 0 }

// String is the RESULT line.
func (r *Result) String() string {
	return fmt.Sprintf("RESULT inputs=%d outputs=%d filtered=%d dead=%d alerts=%d lost=%d duplicates=%d",
		r.Inputs, r.Minor+r.Strong+r.Major, r.Filtered, r.Dead, r.Alerts, len(r.Lost), len(r.Duplicates))
}

// counter compares one subject after the other.
type counter struct {
	e      *Expected
	r      Result
	found  map[string]map[string]bool // subject -> ids of lines
	places map[string]string          // <stream>:<creation>:<sequence> -> id of the line
}

// Count reads all streams of the demo.
func Count(ctx context.Context, js jetstream.JetStream, e *Expected) (*Result, error) {
	c := &counter{e: e, found: map[string]map[string]bool{}, places: map[string]string{}}
	c.r.Reasons = map[string]int{}
	for _, part := range []struct {
		pipeline, path string // what the ids of its messages look like; "" = as published
		subjects       []string
	}{
		{"", "", []string{Ingest}},
		{"parse", "0", []string{Parsed}},
		{"classify", "0.0", []string{Minor, Strong, Major}},
		{"alert", "0", []string{Alerts}},
		{"*", "dlq", []string{Dead}},
	} {
		all, prefix, err := contents(ctx, js, part.subjects...)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			c.see(m, prefix, part.pipeline, part.path)
		}
	}
	c.compare()
	return &c.r, nil
}

// see notes one message under the line that it comes from.
func (c *counter) see(m held, prefix, pipeline, path string) {
	subject := m.subject
	id := c.line(m, pipeline)
	switch {
	case pipeline == "*":
		subject = Dead
		if !bytes.Equal(m.data, c.e.lines[id].data) {
			c.unexpected("%s: the payload of dead letter %d is not that of its message", m.subject, m.sequence)
		}
		c.r.Reasons[m.reason]++
	case pipeline == "" && !bytes.Equal(m.data, c.e.lines[id].data):
		c.unexpected("%s: message %d is not line %s", subject, m.sequence, id)
	}
	if pipeline != "" && !c.made(m, id, pipeline, path) {
		c.unexpected("%s: message %d (%s) has the id %q, which no message of it can have", subject, m.sequence, id, m.id)
	}
	if c.found[subject] == nil {
		c.found[subject] = map[string]bool{}
	}
	if c.found[subject][id] {
		c.r.Duplicates = append(c.r.Duplicates, subject+" "+id)
	}
	c.found[subject][id] = true
	c.places[prefix+":"+strconv.FormatUint(m.sequence, 10)] = id
}

// line is the id of the line that a message comes from: by what it holds, not
// by the id that it has.
func (c *counter) line(m held, pipeline string) string {
	switch pipeline {
	case "":
		return m.id
	case "*":
		if _, ok := c.e.lines[m.origin]; ok {
			return m.origin
		}
		return c.places[origin(m.origin)] // of a later pipeline
	}
	var quake struct{ ID string }
	if err := json.Unmarshal(m.data, &quake); err != nil {
		return fmt.Sprintf("(message %d is no JSON)", m.sequence)
	}
	if id, ok := c.e.byKey[quake.ID]; ok {
		return id
	}
	return quake.ID
}

// made reports whether a message's own id says what it has to: the pipeline,
// the stream and sequence of a message that stems from the same line, the path.
func (c *counter) made(m held, id, pipeline, path string) bool {
	if !strings.HasSuffix(m.id, ":"+path) || pipeline != "*" && !strings.HasPrefix(m.id, pipeline+":") {
		return false
	}
	from, ok := c.places[origin(m.id)]
	return ok && from == id
}

// origin is <stream>:<creation>:<sequence> of the message that an id was made from.
func origin(id string) string {
	_, rest, _ := strings.Cut(id, ":")
	return rest[:max(0, strings.LastIndexByte(rest, ':'))]
}

func (c *counter) unexpected(format string, args ...any) {
	c.r.Unexpected = append(c.r.Unexpected, fmt.Sprintf(format, args...))
}

// compare takes the difference of what is expected and what was found.
func (c *counter) compare() {
	c.found[filtered] = map[string]bool{}
	for id := range c.found[Parsed] {
		if !c.found[Minor][id] && !c.found[Strong][id] && !c.found[Major][id] && !c.found[Dead][id] {
			c.found[filtered][id] = true
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(c.e.of)) {
		expected, found := c.e.of[subject], c.found[subject]
		for _, id := range slices.Sorted(maps.Keys(expected)) {
			if !found[id] {
				c.r.Lost = append(c.r.Lost, subject+" "+id)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(found)) {
			if !expected[id] {
				c.unexpected("%s: %s does not belong there", subject, id)
			}
		}
	}
	n := func(subject string) int { return len(c.found[subject]) }
	c.r.Inputs, c.r.Parsed, c.r.Filtered, c.r.Dead = n(Ingest), n(Parsed), n(filtered), n(Dead)
	c.r.Minor, c.r.Strong, c.r.Major, c.r.Alerts = n(Minor), n(Strong), n(Major), n(Alerts)
}

// Print writes the table, every difference, and the RESULT line last.
func (r *Result) Print(w io.Writer) error {
	var text strings.Builder
	row := func(n int, subject, what string) { fmt.Fprintf(&text, "%6d  %-14s %s\n", n, subject, what) }
	row(r.Inputs, Ingest, "published")
	row(r.Parsed, Parsed, "checked and normalised")
	row(r.Minor, Minor, "below 2.5")
	row(r.Strong, Strong, "from 2.5")
	row(r.Major, Major, "from 4.5")
	row(r.Filtered, "", "explosions and quarry blasts, dropped")
	row(r.Alerts, Alerts, "for strong and major")
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		row(r.Reasons[reason], "dead letters", reason)
	}
	for _, d := range []struct {
		word string
		all  []string
	}{{"lost", r.Lost}, {"duplicate", r.Duplicates}, {"unexpected", r.Unexpected}} {
		for i, what := range d.all {
			if i == 10 {
				fmt.Fprintf(&text, "%s: and %d more\n", d.word, len(d.all)-i)
				break
			}
			fmt.Fprintf(&text, "%s: %s\n", d.word, what)
		}
	}
	if _, err := fmt.Fprintf(w, "%s\n%s\n", text.String(), r); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}
