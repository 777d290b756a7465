package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mqrun/mqrun/pipeline"
)

// differences says how what came differs from what was expected, a line each.
func (e *expectation) differences(dir string, first pipeline.Performance, later []pipeline.Performance, out []pipeline.Line) []string {
	var d []string
	add := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	if first.Verdict != e.Verdict {
		add("verdict: want %s, got %s", e.Verdict, describe(first))
	} else if !strings.Contains(first.Reason, e.Reason) {
		add("reason: want %q in it, got %q", e.Reason, first.Reason)
	}
	if !strings.Contains(first.Log, e.Log) {
		add("log: want %q in it, got %q", e.Log, first.Log)
	}
	if e.Dead != nil && *e.Dead != first.Dead {
		add("dead: want %v, got %v", *e.Dead, first.Dead)
	}
	d = append(d, e.failures(later)...)
	if e.Outputs == nil {
		return d
	}
	want := *e.Outputs
	for i := range max(len(want), len(out)) {
		switch {
		case i >= len(out):
			add("output %d: there is none", i)
		case i >= len(want):
			add("output %d: not expected: %s", i, shortLine(out[i]))
		default:
			for _, line := range want[i].differences(dir, out[i]) {
				add("output %d: %s", i, line)
			}
		}
	}
	return d
}

func describe(p pipeline.Performance) string {
	if p.Reason == "" {
		return p.Verdict
	}
	return p.Verdict + ": " + p.Reason
}

func shortLine(l pipeline.Line) string { return l.Subject + " " + shortText(l.Data) }

func shortText(data []byte) string {
	const most = 200
	if len(data) > most {
		return strconv.Quote(string(data[:most])) + fmt.Sprintf("... (%s)", size(int64(len(data))))
	}
	return strconv.Quote(string(data))
}

// failures holds the pipelines behind the first one to what was expected.
func (e *expectation) failures(later []pipeline.Performance) (d []string) {
	want := slices.Clone(e.Failures)
	for _, p := range later {
		if p.Verdict == "ok" || p.Verdict == "drop" {
			continue
		}
		at := slices.IndexFunc(want, func(f expectedFailure) bool {
			return f.Pipeline == p.Pipeline && (f.Verdict == "" || f.Verdict == p.Verdict) && strings.Contains(p.Reason, f.Reason)
		})
		if at < 0 {
			d = append(d, fmt.Sprintf("pipeline %s: %s, with %s", p.Pipeline, describe(p), shortText(p.Input.Data)))
			continue
		}
		want = slices.Delete(want, at, at+1)
	}
	for _, f := range want {
		d = append(d, fmt.Sprintf("pipeline %s: want %s %s, it did not fail so", f.Pipeline, f.Verdict, f.Reason))
	}
	return d
}

func (o *expectedOutput) differences(dir string, got pipeline.Line) (d []string) {
	if o.Subject != "" && o.Subject != got.Subject {
		d = append(d, fmt.Sprintf("subject: want %s, got %s", o.Subject, got.Subject))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		if v := got.Header.Get(name); v != o.Headers[name] {
			d = append(d, fmt.Sprintf("header %s: want %q, got %q", name, o.Headers[name], v))
		}
	}
	if o.count() == 0 {
		return d
	}
	want, err := o.bytes(dir)
	switch {
	case err != nil:
		d = append(d, err.Error()+"; --update writes it")
	case !o.JSON.IsZero():
		d = append(d, differsJSON(want, got.Data)...)
	case !bytes.Equal(want, got.Data):
		d = append(d, fmt.Sprintf("data:\n  want %s\n  got  %s", shortText(want), shortText(got.Data)))
	}
	return d
}

// differsJSON compares a document with one that must hold all of it.
func differsJSON(want, got []byte) []string {
	var w, g any
	if err := json.Unmarshal(got, &g); err != nil {
		return []string{fmt.Sprintf("data is not JSON (%v): %s", err, shortText(got))}
	}
	if err := json.Unmarshal(want, &w); err != nil {
		return []string{err.Error()}
	}
	return subset("$", w, g)
}

func subset(path string, want, got any) (d []string) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, k := range slices.Sorted(maps.Keys(w)) {
			v, there := g[k]
			if !there {
				d = append(d, fmt.Sprintf("json: %s.%s: want %s, it is not there", path, k, asJSON(w[k])))
				continue
			}
			d = append(d, subset(path+"."+k, w[k], v)...)
		}
		return d
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			d = append(d, subset(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return d
	}
	if a, b := asJSON(want), asJSON(got); a != b {
		d = append(d, fmt.Sprintf("json: %s: want %s, got %s", path, a, b))
	}
	return d
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// update writes the files that outputs are compared with.
func (e *expectation) update(dir string, out []pipeline.Line) error {
	for i, o := range deref(e.Outputs) {
		if o.File == "" || i >= len(out) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, o.File), out[i].Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
