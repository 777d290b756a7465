package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mqrun/mqrun/config"
)

func loadYAML(t *testing.T, yaml string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a.wasm", "b.wasm", "pipelines.yaml"} {
		content := yaml
		if name != "pipelines.yaml" {
			content = name
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(config.LoadOptions{Files: []string{filepath.Join(dir, "pipelines.yaml")}})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const chained = `
plugins: { a: { module: a.wasm }, b: { module: b.wasm, allow: { publish: [out.x, out.y] } } }
pipelines:
  first: { from: [ingest.a, shop.>], steps: [a], to: mid.a, dead_letter: graves.first }
  second: { from: mid.*, steps: [b] }
`

func TestLayout(t *testing.T) {
	l, problems := planLayout(loadYAML(t, chained), nil, 100<<20, 1<<20)
	if problems != nil {
		t.Fatal(problems)
	}
	got := map[string][]string{}
	for _, s := range l.streams {
		got[s.Name] = s.Subjects
	}
	want := map[string][]string{
		"MQRUN":        {"ingest.>", "shop.>", "mqrun.MQRUN.>"},
		"MQRUN_DLQ":    {"dlq.>", "graves.first"},
		"MQRUN_FIRST":  {"mid.a", "mqrun.MQRUN_FIRST.>"},
		"MQRUN_SECOND": {"out.x", "out.y", "mqrun.MQRUN_SECOND.>"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"dlq.>", "graves.first"}, l.deny); diff != "" {
		t.Error(diff)
	}
	in := l.inputs["second"]
	if len(in) != 1 || in[0].stream != "MQRUN_FIRST" || !cmp.Equal(in[0].filters, []string{"mid.*", "mqrun.MQRUN_FIRST.redo.second"}) {
		t.Errorf("second reads %+v", in)
	}
}

func TestLayoutKeepsWhatStreamsHold(t *testing.T) {
	have := []held{{name: "SHOP", subjects: []string{"shop.>"}, created: time.Unix(1, 0), maxMsg: 5}, {name: "MIDDLE", subjects: []string{"mid.>"}}}
	l, problems := planLayout(loadYAML(t, chained), have, 100<<20, 1<<20)
	if problems != nil {
		t.Fatal(problems)
	}
	for _, s := range l.streams {
		if s.Name == "MQRUN_FIRST" || s.Name == "SHOP" || s.Name == "MIDDLE" {
			t.Errorf("stream %s would be made or changed", s.Name)
		}
	}
	in := l.inputs["first"]
	if len(in) != 2 || in[0].stream != "SHOP" || in[0].redo != "" || in[0].maxMsg != 5 || in[1].stream != "MQRUN" {
		t.Errorf("first reads %+v", in)
	}
}

func TestLayoutProblems(t *testing.T) {
	for _, tt := range []struct {
		name, yaml, want string
		have             []held
	}{
		{"held in part", chained, "in part by stream X", []held{{name: "X", subjects: []string{"shop.eu.*"}}}},
		{"input and output in one foreign stream", `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: x.in, steps: [a], to: x.out } }
`, "both lie in stream X", []held{{name: "X", subjects: []string{"x.>"}}}},
		{"dead letters that are there", chained, "stream MQRUN_DLQ takes messages of 4096 bytes, and a dead letter needs up to 65536", []held{{name: "MQRUN_DLQ", subjects: []string{"dlq.>"}, ours: true, maxMsg: 4096}}},
		{"batch without outputs", `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: x.in, steps: [a], commit: batch } }
`, "pipelines.p.commit: commit: batch keeps its checkpoint with the outputs, and this pipeline has none: set to, or use commit: each", nil},
		{"batch of two inputs", `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: [x.in, y.in], steps: [a], to: x.out, commit: batch } }
`, "commit: batch reads one stream; from lies in 2", []held{{name: "Y", subjects: []string{"y.>"}}}},
		{"batch into two streams", `
plugins: { a: { module: a.wasm, allow: { publish: [y.out] } } }
pipelines: { p: { from: x.in, steps: [a], to: x.out, commit: batch } }
`, "commit: batch needs all outputs in one stream; they lie in MQRUN_P, Y", []held{{name: "Y", subjects: []string{"y.>"}, ours: true}}},
		{"batch into a stream of others", `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: x.in, steps: [a], to: y.out, commit: batch } }
`, "commit: batch needs a stream made by mqrun for its outputs; Y is not", []held{{name: "Y", subjects: []string{"y.>"}}}},
		{"batch from a work queue", `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: x.in, steps: [a], to: x.out, commit: batch } }
`, "commit: batch acks nothing, so it cannot read stream X, which keeps each message until it is acked", []held{{name: "X", subjects: []string{"x.in"}, queue: true}}},
	} {
		_, problems := planLayout(loadYAML(t, tt.yaml), tt.have, 100<<20, 1<<20)
		if !strings.Contains(problems.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, problems, tt.want)
		}
	}
}

func TestExplainBatch(t *testing.T) {
	yaml := `
plugins: { a: { module: a.wasm, allow: { kv: [seen] } } }
pipelines:
  p: { from: x.in, steps: [a], to: x.out, commit: batch }
  q: { from: x.in, steps: [a], to: y.out, commit: batch, dead_letter: none }
`
	said := func(name string) string {
		sections, err := Explain(t.Context(), nil, loadYAML(t, yaml), name)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, s := range sections {
			lines = append(lines, s.Lines...)
		}
		return strings.Join(lines, "\n")
	}
	p := said("p")
	for _, want := range []string{
		"by a consumer that lives as long as the process",
		"stored together in stream MQRUN_P, many messages at a time; each input's outputs are stored there exactly once",
		"at most 899 outputs", "mqrun.MQRUN_P.retry.p.0.>", "takes over within 6s", "mqrun.MQRUN_P.ckpt.p.0",
		"a dead letter is stored before the position", "what a stores in kv is outside of it",
	} {
		if !strings.Contains(p, want) {
			t.Errorf("%q is missing in\n%s", want, p)
		}
	}
	if strings.Contains(said("q"), "a dead letter is stored before") {
		t.Error("it has no dead letters")
	}
}
