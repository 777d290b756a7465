package pipeline

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/host"
)

// TestHostilePluginsHarmNobody: every hostile guest that loads runs as a
// pipeline beside a healthy one. The healthy one loses nothing, and each
// message of a hostile one is a dead letter for the right reason.
func TestHostilePluginsHarmNobody(t *testing.T) {
	reasons := map[string]string{
		"bomb": host.ReasonMemory, "bulk": host.ReasonTimeout, "bytes": host.ReasonLimit, "chase": host.ReasonTimeout,
		"deep": host.ReasonTrap, "divide": host.ReasonTimeout, "emits": host.ReasonTimeout, "fork": host.ReasonTimeout,
		"grows": host.ReasonTimeout, "headers": host.ReasonTimeout, "logs": host.ReasonTimeout, "loop": host.ReasonTimeout,
		"naps": host.ReasonTimeout, "random": host.ReasonTimeout, "sleep": host.ReasonTimeout, "table-ops": host.ReasonTimeout,
		"tables": host.ReasonTimeout, "trap": host.ReasonTrap, "writes": host.ReasonTimeout,
	}
	refused := []string{"exit-init", "start-loop", "table-huge", "wait"} // they do not load
	rt, err := host.New(t.Context(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	r := newRig(t, "plugins: {}\npipelines: {}\n", nil)
	r.m.load = sandboxed(rt, nil)
	defer r.stopManager() // before the runtime
	files, err := filepath.Glob("../host/testdata/hostile/*.wasm")
	if err != nil {
		t.Fatal(err)
	}
	var plugins, pipelines strings.Builder
	add := func(file, name, limits string) {
		module, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.dir, name+".wasm"), module, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&plugins, "  %s: { module: %s.wasm, limits: { %s } }\n", name, name, limits)
		fmt.Fprintf(&pipelines, "  %s: { from: in.%s, steps: [%s], to: out.%s, workers: 1, retry: { attempts: 2, initial: 20ms } }\n", name, name, name, name)
	}
	add("../host/testdata/echo.wasm", "healthy", "timeout: 1m")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".wasm")
		switch {
		case slices.Contains(refused, name):
		case reasons[name] == "":
			t.Errorf("%s: it is not said what becomes of its messages", name)
		case reasons[name] == host.ReasonTimeout:
			add(file, name, "timeout: 100ms")
		default:
			add(file, name, "timeout: 1m")
		}
	}
	r.apply("streams: { IN: { subjects: [in.>] } }\nplugins:\n" + plugins.String() + "pipelines:\n" + pipelines.String())
	const healthy, each = 300, 2
	names := slices.Sorted(maps.Keys(reasons))
	for i := range healthy {
		r.pub("in.healthy", fmt.Sprint(i))
		if i < each {
			for _, name := range names {
				r.pub("in."+name, "") // trap takes others well
			}
		}
	}
	got := map[string]bool{}
	for _, m := range r.read("MQRUN_HEALTHY", "out.healthy", healthy) {
		got[string(m.Data())] = true
	}
	if len(got) != healthy {
		t.Errorf("%d of %d messages came out of the healthy pipeline", len(got), healthy)
	}
	for _, name := range names {
		for _, m := range r.read("MQRUN_DLQ", "dlq."+name, each) {
			if reason := m.Headers().Get("Mqrun-Reason"); reason != reasons[name] {
				t.Errorf("%s: dead letter for %s (%s), want %s", name, reason, m.Headers().Get("Mqrun-Error"), reasons[name])
			}
		}
	}
	if n := r.count("MQRUN_DLQ", "dlq.>"); n != each*len(names) {
		t.Errorf("%d dead letters; want %d", n, each*len(names))
	}
}
