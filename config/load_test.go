package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mqrun/mqrun/config"
)

// good loads a configuration that must have no problem.
func good(t *testing.T, yaml string, o config.LoadOptions) *config.Config {
	t.Helper()
	c, err := load(t, yaml, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestProblemsOfValues(t *testing.T) {
	for _, prefix := range []string{"breaker", "rollout", "later", "listen", "nats", "not-yaml", "order", "partitions", "shapes", "subjects"} {
		golden(t, prefix)
	}
}

func TestDefaults(t *testing.T) {
	c := good(t, small+"streams:\n  S-1_A: { subjects: [s.>] }\n", config.LoadOptions{})
	want := &config.Config{
		Dir: c.Dir, Files: []string{"pipelines.yaml"},
		Server: config.Server{StoreDir: filepath.Join(c.Dir, ".mqrun"), MaxBytes: 10 << 30, Sync: config.Sync{Always: true}, MaxPayload: 1 << 20},
		NATS:   config.NATS{Replicas: 3},
		Web:    config.Web{Listen: "127.0.0.1:4280"},
		Host:   config.Host{Memory: 2 << 30},
		Streams: map[string]*config.Stream{"S-1_A": {
			Name: "S-1_A", Subjects: []string{"s.>"}, MaxMsgSize: 1<<20 - 64<<10, Retention: "limits", Discard: "new",
			DuplicateWindow: 2 * time.Minute, Keep: time.Hour,
		}},
		Plugins: map[string]*config.Plugin{"a": {
			Name: "a", Module: "a.wasm", Path: filepath.Join(c.Dir, "a.wasm"), ABI: "auto", Config: map[string]string{}, ConfigJSON: []byte("{}"),
			Isolation: "pool", Recycle: 100000, Limits: config.Limits{
				Memory: 64 << 20, Timeout: 5 * time.Second, Init: 5 * time.Second, Outputs: 900, OutputBytes: 8 << 20,
				LogLines: 64, LogBytes: 64 << 10, ReasonBytes: 1 << 10, Table: 65536, Module: 32 << 20, Meter: true,
			},
			Rollout: config.Rollout{Canary: 0.1, Watch: 30 * time.Second, MaxFailureRatio: 0.05},
		}},
		Pipelines: map[string]*config.Pipeline{"p": {
			Name: "p", From: []string{"in.x"}, Steps: []string{"a"}, To: "out.x", Start: config.Start{Policy: "all"},
			MaxInFlight: 512, Order: "none", Commit: "each", Partitions: 1, AckWait: 30 * time.Second,
			Retry:      config.Retry{Attempts: 12, Initial: 500 * time.Millisecond, Factor: 2, Max: 5 * time.Minute, Jitter: 0.2},
			Breaker:    config.Breaker{FailureRatio: 0.9, Window: 30 * time.Second, Min: 50},
			DeadLetter: "dlq.p",
		}},
	}
	if diff := cmp.Diff(want, c, cmpopts.IgnoreUnexported(config.Config{}, config.Plugin{})); diff != "" {
		t.Error(diff)
	}
	if dir, err := os.Getwd(); err != nil || c.Dir != dir {
		t.Errorf("Dir %q; want %q (%v)", c.Dir, dir, err)
	}
}

func TestValues(t *testing.T) {
	c := good(t, `server: { store_dir: /var/lib/mqrun, sync: 2m, listen: "127.0.0.1:0", auth: none }
plugins:
  a:
    module: a.wasm
    config: { n: 0123, v: 1.10, t: true, z: null, e: , m: {b: [1e3, ~], a: {}}, h: <&> }
    allow: { publish: [] }
pipelines:
  all: { from: in.x, steps: a, start: new }
  seq: { from: in.x, steps: a, start: 17 }
  time: { from: in.x, steps: [a, a], start: 2026-01-31T01:00:00+01:00 }
`, config.LoadOptions{})
	if s := c.Server; s.StoreDir != "/var/lib/mqrun" || s.Sync != (config.Sync{Interval: 2 * time.Minute}) || s.Listen != "127.0.0.1:0" || s.Auth != "none" {
		t.Errorf("server %+v", s)
	}
	a := c.Plugins["a"]
	if want := `{"e":"","h":"<&>","m":{"a":{},"b":["1e3","~"]},"n":"0123","t":"true","v":"1.10","z":"null"}`; string(a.ConfigJSON) != want {
		t.Errorf("config %s; want %s", a.ConfigJSON, want)
	}
	if want := map[string]string{"e": "", "h": "<&>", "m": `{"a":{},"b":["1e3","~"]}`, "n": "0123", "t": "true", "v": "1.10", "z": "null"}; !cmp.Equal(want, a.Config) {
		t.Error(cmp.Diff(want, a.Config))
	}
	if !a.Allow.PublishSet || len(a.Allow.Publish) != 0 {
		t.Errorf("allow %+v; want an empty list that is set", a.Allow)
	}
	for name, want := range map[string]config.Start{
		"all": {Policy: "new"}, "seq": {Policy: "sequence", Sequence: 17},
		"time": {Policy: "time", Time: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)},
	} {
		if got := c.Pipelines[name].Start; got != want {
			t.Errorf("start of %s = %+v; want %+v", name, got, want)
		}
	}
}

func TestFilesInOrder(t *testing.T) {
	enter(t,
		file{"base/10-server.yaml", "server: { listen: \"127.0.0.1:1\", max_bytes: 1GiB }\nplugins: { a: { module: a.wasm } }\n"},
		file{"base/20-pipelines.yaml", "pipelines: { p: { from: in.x, steps: a } }\n"},
		file{"base/.hidden.yaml", "nonsense"}, file{"base/a.wasm", "a"}, file{"base/sub.yaml/x", ""},
		file{"site.yaml", "server: { listen: \"127.0.0.1:2\" }\npipelines: { q: { from: in.y, steps: a } }\n"},
	)
	c, err := config.Load(config.LoadOptions{Files: []string{"base", "site.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"base/10-server.yaml", "base/20-pipelines.yaml", "site.yaml"}; !slices.Equal(c.Files, want) {
		t.Errorf("files %q; want %q", c.Files, want)
	}
	if filepath.Base(c.Dir) != "base" || c.Server.Listen != "127.0.0.1:2" || c.Server.MaxBytes != 1<<30 || len(c.Pipelines) != 2 {
		t.Errorf("dir %s, server %+v, pipelines %d", c.Dir, c.Server, len(c.Pipelines))
	}
	if got := c.At("server", "listen").String(); got != "site.yaml:1:19" {
		t.Errorf("server.listen is at %s", got)
	}
}

func TestUnreadableIsNoProblem(t *testing.T) {
	enter(t, file{"empty/x.yml", "a: b"})
	big := strings.Repeat("# a line of nothing\n", 300_000)
	if err := os.WriteFile("big.yaml", []byte(big), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"missing.yaml": "read config: stat missing.yaml: no such file or directory",
		"empty":        "read config: the directory empty holds no *.yaml file",
		"big.yaml":     "read config: big.yaml is larger than 4MiB",
		"/dev/zero":    "read config: /dev/zero is larger than 4MiB",
	} {
		_, err := config.Load(config.LoadOptions{Files: []string{name}})
		var ps config.Problems
		if err == nil || err.Error() != want || errors.As(err, &ps) {
			t.Errorf("Load(%s) = %v; want %s", name, err, want)
		}
		if name == "missing.yaml" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is not fs.ErrNotExist", err)
		}
	}
	if _, err := config.Load(config.LoadOptions{}); err == nil {
		t.Error("Load without a file succeeded")
	}
}

func TestLoadStartsAfreshEachTime(t *testing.T) {
	c := good(t, small+"    workers: 7\n  gone: { from: in.y, steps: a }\n", config.LoadOptions{})
	if c.Pipelines["p"].Workers != 7 || len(c.Pipelines) != 2 {
		t.Fatalf("pipelines %+v", c.Pipelines)
	}
	c = good(t, small, config.LoadOptions{})
	if c.Pipelines["p"].Workers != 0 || len(c.Pipelines) != 1 {
		t.Errorf("a removed key survived: %+v", c.Pipelines)
	}
}

func TestHash(t *testing.T) {
	hashes := func(yaml string) [2]string {
		c := good(t, yaml, config.LoadOptions{})
		c.Plugins["a"].Path = "" // each load has its own folder
		return [2]string{c.Pipelines["p"].Hash(), c.Plugins["a"].Hash()}
	}
	before := hashes(small)
	if again := hashes("# comment\n" + small + "    ack_wait: 30000ms\n    workers: 0\n"); again != before {
		t.Error("the same values have another hash")
	}
	if other := hashes(small + "    workers: 1\n"); other[0] == before[0] || other[1] != before[1] {
		t.Error("workers must change the pipeline's hash alone")
	}
	if other := hashes(strings.Replace(small, "a.wasm", "a.wasm, config: {x: y}", 1)); other[0] != before[0] || other[1] == before[1] {
		t.Error("config must change the plugin's hash alone")
	}
}

func TestPublishes(t *testing.T) {
	c := good(t, `plugins:
  a: { module: a.wasm, allow: { publish: [z.x, "y.>"] } }
  b: { module: b.wasm, allow: { publish: [y.b, z.x] } }
  none: { module: b.wasm }
pipelines:
  p: { from: in.x, steps: [a, b, none], to: y.q.r }
  q: { from: in.x, steps: none, to: out.q }
  r: { from: in.x, steps: none }
`, config.LoadOptions{})
	for name, want := range map[string][]string{"p": {"y.>", "z.x"}, "q": {"out.q"}, "r": nil, "nobody": nil} {
		if got := c.Publishes(name); !slices.Equal(got, want) {
			t.Errorf("Publishes(%s) = %q; want %q", name, got, want)
		}
	}
}

func TestAtAndProblem(t *testing.T) {
	c := good(t, small+"  q:\n    from:\n      - a.b\n      - c.d\n    steps: a\n", config.LoadOptions{})
	for path, want := range map[string]string{
		"":                           "pipelines.yaml:1:1",
		"nats":                       "pipelines.yaml:1:1",
		"plugins a module":           "pipelines.yaml:2:16",
		"plugins a limits memory":    "pipelines.yaml:2:3",
		"pipelines p":                "pipelines.yaml:4:3",
		"pipelines p from":           "pipelines.yaml:5:11",
		"pipelines p steps 0":        "pipelines.yaml:6:13",
		"pipelines q from 1":         "pipelines.yaml:11:9",
		"pipelines p retry attempts": "pipelines.yaml:4:3",
	} {
		if got := c.At(strings.Fields(path)...).String(); got != want {
			t.Errorf("At(%s) = %s; want %s", path, got, want)
		}
	}
	p := c.Problem(`imports "kv_get"`, "kv", "pipelines", "q", "from", "1")
	if got, want := p.String(), `pipelines.yaml:11:9: pipelines.q.from[1]: imports "kv_get" (did you mean "kv"?)`; got != want {
		t.Errorf("problem %s; want %s", got, want)
	}
}

func TestStreamWithMaxAgeThatIsRead(t *testing.T) {
	c := good(t, small+"streams:\n  IN: { subjects: in.>, max_age: 24h }\n  OTHER: { subjects: other.>, max_age: 24h }\n", config.LoadOptions{})
	want := `pipelines.yaml:9:34: streams.IN.max_age: the pipeline "p" reads this stream: what it has not handled after 24h is gone without a trace`
	if got := c.Warnings.Error(); got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
	_, err := load(t, "streams:\n  A: { subjects: a.x, max_age: 1m, max_bytes: 20GiB, max_msg_size: 1MiB }\n", config.LoadOptions{})
	wantErr := `pipelines.yaml:2:32: streams.A.max_age: 1m is less than duplicate_window, 2m: a repeated message would be stored twice
pipelines.yaml:2:47: streams.A.max_bytes: 20GiB is more than server.max_bytes, 10GiB
pipelines.yaml:2:68: streams.A.max_msg_size: 1MiB is more than server.max_payload less 64KiB for headers, 960KiB`
	if err == nil || err.Error() != wantErr {
		t.Errorf("problems:\n%v\nwant:\n%s", err, wantErr)
	}
}

func TestBounds(t *testing.T) {
	deep := strings.Repeat("{ a: ", 100) + "1" + strings.Repeat(" }", 100)
	_, err := load(t, "plugins: { a: { module: a.wasm, config: "+deep+" } }\n", config.LoadOptions{})
	if err == nil || !strings.HasSuffix(err.Error(), ": is nested more than 32 levels deep") {
		t.Errorf("a deep config: %v", err)
	}
	_, err = load(t, small+"  q: { steps: a, from: ["+strings.Repeat("x, ", 1001)+"] }\n", config.LoadOptions{})
	if want := "pipelines.yaml:8:24: pipelines.q.from: has 1001 items; the limit is 1000"; err == nil || err.Error() != want {
		t.Errorf("a long list: %v; want %s", err, want)
	}
}

func TestBreakerIsOnWhenItIsWritten(t *testing.T) {
	for more, want := range map[string]config.Breaker{
		"":                                      {FailureRatio: 0.9, Window: 30 * time.Second, Min: 50},
		"    breaker: {}\n":                     {On: true, FailureRatio: 0.9, Window: 30 * time.Second, Min: 50},
		"    breaker:\n":                        {On: true, FailureRatio: 0.9, Window: 30 * time.Second, Min: 50},
		"    breaker: { min: 5, window: 1m }\n": {On: true, FailureRatio: 0.9, Window: time.Minute, Min: 5},
		"    breaker: { failure_ratio: 0.5 }\n": {On: true, FailureRatio: 0.5, Window: 30 * time.Second, Min: 50},
		"  q: { from: q.x, steps: a, breaker: {} }\n": {FailureRatio: 0.9, Window: 30 * time.Second, Min: 50},
	} {
		if got := good(t, small+more, config.LoadOptions{}).Pipelines["p"].Breaker; got != want {
			t.Errorf("%q: %+v; want %+v", more, got, want)
		}
	}
	set := config.LoadOptions{Set: []string{"pipelines.p.breaker.min=7"}}
	if got := good(t, small, set).Pipelines["p"].Breaker; !got.On || got.Min != 7 {
		t.Errorf("from the command line: %+v", got)
	}
}

func TestWhatGuestsMayHave(t *testing.T) {
	c := good(t, `host: { memory: 512MiB, running: 3 }
plugins:
  a:
    module: a.wasm
    limits: { fuel: 1000000, meter: off }
    allow: { kv: [seen, Totals_2], env: [REGION, HOME] }
pipelines:
  p: { from: in.x, steps: a, to: out.x }
`, config.LoadOptions{})
	a := c.Plugins["a"]
	if c.Host != (config.Host{Memory: 512 << 20, Running: 3}) || a.Limits.Fuel != 1_000_000 || a.Limits.Meter ||
		!cmp.Equal(a.Allow.KV, []string{"seen", "Totals_2"}) || !cmp.Equal(a.Allow.Env, []string{"REGION", "HOME"}) {
		t.Errorf("%+v %+v", c.Host, a)
	}
	if len(c.Warnings) != 1 || c.Warnings[0].String() != `pipelines.yaml:5:37: plugins.a.limits.meter: off trusts the plugin: if it is hostile, it can stop mqrun and all that runs in it` {
		t.Errorf("%v", c.Warnings)
	}
}

func TestBucketsAndVariablesThatAreNone(t *testing.T) {
	golden(t, "allow")
}

// What a guest stores elsewhere is not in the batch.
func TestBatchWarnsOfKV(t *testing.T) {
	c := good(t, `plugins:
  a: { module: a.wasm, allow: { kv: [seen] } }
  b: { module: a.wasm }
pipelines:
  p: { from: in.x, steps: [b, a, a], to: out.x, commit: batch }
  q: { from: in.x, steps: [a], to: out.y }
  r: { from: in.x, steps: [b], to: out.z, commit: batch, breaker: {} }
`, config.LoadOptions{})
	want := `pipelines.yaml:5:57: pipelines.p.commit: exactly once holds for the outputs alone: what the plugin "a" stores in kv may be stored more often than once (allow.kv)`
	if got := c.Warnings.Error(); got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
}
