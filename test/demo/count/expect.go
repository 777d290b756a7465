// Package count finds out what the demo's pipelines did with their input, from
// the streams alone: it works out which ids each subject must hold, reads which
// it does hold, and compares the sets.
//
// # Caveats
//
// Nothing is taken from mqrun's own counters, and the plugins' rules are
// written here a second time, in a few lines: a fault in one of them shows as a
// difference. The count is meaningful once Settled said so.
package count

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// The subjects of the demo.
const (
	Ingest = "ingest.quakes"
	Parsed = "quakes.parsed"
	Minor  = "quakes.minor"
	Strong = "quakes.strong"
	Major  = "quakes.major"
	Alerts = "alerts.outbox"
	Dead   = "dlq.>"
)

// filtered stands among the subjects for messages that end without an output.
const filtered = "(filtered)"

// line is one line of input: what it is published as, and the earthquake in it.
type line struct {
	id    string // Nats-Msg-Id, FILE:LINE
	quake string // "" = damaged
	data  []byte
}

// Expected is what has to be where, worked out from the input files.
type Expected struct {
	lines map[string]line            // by id
	of    map[string]map[string]bool // subject -> ids of lines
	byKey map[string]string          // earthquake -> id of its line
}

// Expect reads the files in which every line is one message.
func Expect(files ...string) (*Expected, error) {
	e := &Expected{lines: map[string]line{}, byKey: map[string]string{}, of: map[string]map[string]bool{}}
	for _, subject := range []string{Ingest, Parsed, Minor, Strong, Major, Alerts, filtered, Dead} {
		e.of[subject] = map[string]bool{}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read input: %w", err)
		}
		for i, data := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
			if err := e.add(line{id: filepath.Base(file) + ":" + strconv.Itoa(i+1), data: data}); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

// Inputs is how many messages have to be published.
func (e *Expected) Inputs() int { return len(e.lines) }

func (e *Expected) add(l line) error {
	var report struct {
		ID         string
		Properties struct {
			Mag  *float64
			Type string
		}
	}
	p := &report.Properties
	if json.Unmarshal(l.data, &report) == nil && report.ID != "" && p.Mag != nil {
		l.quake = report.ID
	}
	if other, twice := e.byKey[l.quake]; twice && l.quake != "" {
		return fmt.Errorf("read input: earthquake %s is in %s and in %s; the count goes by it", l.quake, other, l.id)
	}
	e.lines[l.id] = l
	at := []string{Ingest}
	switch {
	case l.quake == "":
		at = append(at, Dead)
	case p.Type == "explosion" || p.Type == "quarry blast":
		at = append(at, Parsed, filtered)
	case *p.Mag < 2.5:
		at = append(at, Parsed, Minor)
	case *p.Mag < 4.5:
		at = append(at, Parsed, Strong, Alerts)
	default:
		at = append(at, Parsed, Major, Alerts)
	}
	for _, subject := range at {
		e.of[subject][l.id] = true
	}
	if l.quake != "" {
		e.byKey[l.quake] = l.id
	}
	return nil
}
