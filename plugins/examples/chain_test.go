package examples

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// outcome is a line of what mqrun.Main prints.
type outcome struct {
	Sequence int
	Verdict  string
	Reason   string
	Outputs  []struct{ Subject, Data string }
}

// TestChain takes every line of the demo through its four plugins, built
// natively, and compares the ids that arrive on each subject with the ones that
// the input promises.
func TestChain(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./go-parse", "./go-enrich", "./go-classify", "./go-alert")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	quakes, damaged := readLines(t, "data/earthquakes.ndjson"), readLines(t, "data/damaged.ndjson")
	want := promised(t, quakes)

	parsed := plugin(t, bin, "go-parse", slices.Concat(quakes, damaged))
	if got := count(parsed, "REJECT"); got != len(damaged) {
		t.Errorf("parse rejected %d; want %d", got, len(damaged))
	}
	enriched := plugin(t, bin, "go-enrich", outputs(parsed, ""))
	same(t, "quakes.parsed", outputs(parsed, ""), want["quakes.parsed"])
	classified := plugin(t, bin, "go-classify", outputs(enriched, ""), "-config", "strong_from=2.5", "-config", "major_from=4.5")
	if got := count(classified, "DROP"); got != 28 {
		t.Errorf("classify dropped %d; want 28", got)
	}

	var alerts []string
	var retried int
	for _, subject := range []string{"quakes.minor", "quakes.strong", "quakes.major"} {
		routed := outputs(classified, subject)
		same(t, subject, routed, want[subject])
		if subject == "quakes.minor" {
			continue
		}
		first := plugin(t, bin, "go-alert", routed, "-subject", subject)
		var again []string
		for i, o := range first {
			if o.Verdict == "RETRY" {
				again = append(again, routed[i])
			}
		}
		retried += len(again)
		alerts = slices.Concat(alerts, outputs(first, ""), outputs(plugin(t, bin, "go-alert", again, "-subject", subject, "-attempt", "2"), ""))
	}
	same(t, "alerts.outbox", alerts, want["alerts.outbox"])
	if retried != 29 {
		t.Errorf("alert asked for %d second attempts; want 29", retried)
	}
	for subject, n := range map[string]int{"quakes.parsed": 1707, "quakes.minor": 1382, "quakes.strong": 212, "quakes.major": 85, "alerts.outbox": 297} {
		if got := len(want[subject]); got != n {
			t.Errorf("the data promises %d on %s; want %d", got, subject, n)
		}
	}
}

// promised works out which ids belong on which subject, by other means than the plugins.
func promised(t *testing.T, quakes []string) map[string][]string {
	t.Helper()
	want := map[string][]string{}
	for _, line := range quakes {
		var q struct {
			ID         string
			Properties struct {
				Mag  float64
				Type string
			}
		}
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			t.Fatal(err)
		}
		subjects := []string{"quakes.parsed"}
		switch mag := q.Properties.Mag; {
		case q.Properties.Type != "earthquake":
		case mag < 2.5:
			subjects = append(subjects, "quakes.minor")
		case mag < 4.5:
			subjects = append(subjects, "quakes.strong", "alerts.outbox")
		default:
			subjects = append(subjects, "quakes.major", "alerts.outbox")
		}
		for _, s := range subjects {
			want[s] = append(want[s], q.ID)
		}
	}
	return want
}

func plugin(t *testing.T, bin, name string, lines []string, args ...string) []outcome {
	t.Helper()
	var out, diag bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &diag)
	}
	var outcomes []outcome
	for dec := json.NewDecoder(&out); dec.More(); {
		var o outcome
		if err := dec.Decode(&o); err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
		outcomes = append(outcomes, o)
	}
	if len(outcomes) != len(lines) {
		t.Fatalf("%v: got %d outcomes of %d lines", cmd, len(outcomes), len(lines))
	}
	return outcomes
}

func outputs(outcomes []outcome, subject string) []string {
	var data []string
	for _, o := range outcomes {
		for _, out := range o.Outputs {
			if out.Subject == subject {
				data = append(data, out.Data)
			}
		}
	}
	return data
}

func count(outcomes []outcome, verdict string) int {
	n := 0
	for _, o := range outcomes {
		if o.Verdict == verdict {
			n++
		}
	}
	return n
}

// same compares id sets: each wanted id once, nothing else.
func same(t *testing.T, subject string, messages, want []string) {
	t.Helper()
	seen := map[string]int{}
	for _, m := range messages {
		var q struct{ ID string }
		if err := json.Unmarshal([]byte(m), &q); err != nil {
			t.Fatal(err)
		}
		seen[q.ID]++
	}
	if err := diff(seen, want); err != nil {
		t.Errorf("%s: %v", subject, err)
	}
}

func diff(seen map[string]int, want []string) error {
	var errs []error
	for _, id := range want {
		if seen[id] != 1 {
			errs = append(errs, fmt.Errorf("%s arrived %d times", id, seen[id]))
		}
		delete(seen, id)
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		errs = append(errs, fmt.Errorf("%s was not wanted", id))
	}
	return errors.Join(errs...)
}

func readLines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}
