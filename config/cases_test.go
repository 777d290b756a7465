package config_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mqrun/mqrun/config"
)

func TestCFG01_DurationsNeedAUnit(t *testing.T) {
	golden(t, "cfg01")
	c := good(t, small+"    ack_wait: 1h30m\n    retry: { initial: 1.5s }\n", config.LoadOptions{
		Env: []string{"MQRUN_PLUGINS__A__LIMITS__TIMEOUT=30s"}, Set: []string{"plugins.a.limits.init=250ms"},
	})
	got := []time.Duration{c.Pipelines["p"].AckWait, c.Pipelines["p"].Retry.Initial, c.Plugins["a"].Limits.Timeout, c.Plugins["a"].Limits.Init}
	if want := []time.Duration{90 * time.Minute, 1500 * time.Millisecond, 30 * time.Second, 250 * time.Millisecond}; !slices.Equal(got, want) {
		t.Errorf("durations %v; want %v", got, want)
	}
}

func TestCFG03_MisspeltKeyIsRefused(t *testing.T) { golden(t, "cfg03") }

func TestCFG04_DuplicatesNameBothPlaces(t *testing.T) { golden(t, "cfg04") }

func TestCFG05_KeysWithDotsStayWhole(t *testing.T) {
	const yaml = `plugins:
  a:
    module: a.wasm
    config: { orders.new: a, orders: b, "orders.>": c, "orders.eu": { x.y: d } }
`
	for name, tt := range map[string]struct {
		o    config.LoadOptions
		want map[string]string
	}{
		"as written":  {config.LoadOptions{}, map[string]string{"orders.new": "a", "orders": "b", "orders.>": "c", "orders.eu": `{"x.y":"d"}`}},
		"environment": {config.LoadOptions{Env: []string{"MQRUN_PLUGINS__A__CONFIG__ORDERS_NEW=1"}}, map[string]string{"orders.new": "1", "orders": "b", "orders.>": "c", "orders.eu": `{"x.y":"d"}`}},
		"set":         {config.LoadOptions{Set: []string{"plugins.a.config.orders.new=1", "plugins.a.config.orders=2", "plugins.a.config.orders.eu.x.y=3"}}, map[string]string{"orders.new": "1", "orders": "2", "orders.>": "c", "orders.eu": `{"x.y":"3"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			c := good(t, yaml, tt.o)
			if diff := cmp.Diff(tt.want, c.Plugins["a"].Config); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCFG06_EnvironmentReachesOnlyWhatExists(t *testing.T) {
	golden(t, "cfg06")
	const yaml = small + "    workers: 1\n    max_in_flight: 1\nweb: { listen: 127.0.0.1:1 }\n"
	c := good(t, yaml, config.LoadOptions{
		Env: []string{
			"NATS=x", "PIPELINES=1", "PATH=/bin", "XMQRUN_WEB=1",
			"MQRUN_PIPELINES__P__WORKERS=2", "MQRUN_pipelines__p__Max_In_Flight=2", `MQRUN_WEB__LISTEN=""`,
			`MQRUN_PIPELINES__P__FROM=[in.a, "in.b.>"]`, "MQRUN_PIPELINES__P__TO=out.y",
		},
		Set: []string{"pipelines.p.workers=3", "pipelines.p.workers=4"},
	})
	p := c.Pipelines["p"]
	if p.Workers != 4 || p.MaxInFlight != 2 || p.To != "out.y" || c.Web.Listen != "" {
		t.Errorf("workers %d, max_in_flight %d, to %q, web %q; want 4, 2, out.y and none", p.Workers, p.MaxInFlight, p.To, c.Web.Listen)
	}
	if want := []string{"in.a", "in.b.>"}; !slices.Equal(p.From, want) {
		t.Errorf("from %q; want %q", p.From, want)
	}
	for path, want := range map[string]string{
		"pipelines workers":         "pipelines.yaml:3:1",
		"pipelines p workers":       "--set pipelines.p.workers",
		"pipelines p max_in_flight": "MQRUN_pipelines__p__Max_In_Flight",
		"pipelines p from 1":        "MQRUN_PIPELINES__P__FROM",
	} {
		if got := c.At(strings.Fields(path)...).String(); got != want {
			t.Errorf("At(%s) = %s; want %s", path, got, want)
		}
	}
}

func TestCFG08_VariablesNeverChangeTheStructure(t *testing.T) {
	golden(t, "cfg08")
	const password = `p#a$b"c: d` + "\n  max_in_flight: 99"
	c := good(t, `server: { auth: "${TOKEN}" }
plugins:
  a:
    module: ${FILE:-a.wasm}
    config:
      password: ${PASSWORD}
      twice: <${ONE}${ONE}>
      dollar: $5 $ $$ $${ONE}
      empty: "${EMPTY}"
      preset: ${EMPTY:-x:-y}
      nested: [ "${PASSWORD}" ]
pipelines:
  p: { from: in.x, steps: a, workers: "${N}" }
`, config.LoadOptions{Env: []string{"TOKEN=abc", "PASSWORD=" + password, "ONE=${TOKEN}", "EMPTY=", "N=3"}})
	want := map[string]string{
		"password": password, "twice": "<${TOKEN}${TOKEN}>", "dollar": "$5 $ $$ ${ONE}", "empty": "", "preset": "x:-y",
		"nested": `["p#a$b\"c: d\n  max_in_flight: 99"]`,
	}
	if diff := cmp.Diff(want, c.Plugins["a"].Config); diff != "" {
		t.Error(diff)
	}
	if p := c.Pipelines["p"]; p.MaxInFlight != 512 || p.Workers != 3 || c.Server.Auth != "abc" {
		t.Errorf("max_in_flight %d, workers %d, auth %q", p.MaxInFlight, p.Workers, c.Server.Auth)
	}
}

func TestCFG09_SizesAndIntegersAreExact(t *testing.T) {
	golden(t, "cfg09")
	for text, want := range map[string]int64{
		"64MiB": 64 << 20, "64MB": 64e6, "2000000B": 2e6, "1234KB": 1234e3, "2048KiB": 2 << 20, "1GB": 1e9, "3GiB": 3 << 30,
	} {
		c := good(t, small, config.LoadOptions{Set: []string{"server.max_bytes=" + text}})
		if got := c.Server.MaxBytes; got != want {
			t.Errorf("%s is %d bytes; want %d", text, got, want)
		}
	}
}

func TestCFG10_UnquotedWildcards(t *testing.T) {
	golden(t, "cfg10")
	c := good(t, small+"  q: { from: [\"a.*\", b.>, 'c'], steps: a }\n", config.LoadOptions{})
	if got, want := c.Pipelines["q"].From, []string{"a.*", "b.>", "c"}; !slices.Equal(got, want) {
		t.Errorf("from %q; want %q", got, want)
	}
}

func TestHDR07_NamesFitEverywhere(t *testing.T) {
	golden(t, "hdr07")
	name := strings.Repeat("x", 64)
	c := good(t, "plugins:\n  "+name+": { module: a.wasm }\npipelines:\n  1-a: { from: in.x, steps: "+name+" }\n  "+name+": { from: in.x, steps: "+name+" }\n", config.LoadOptions{})
	if got, want := slices.Sorted(maps.Keys(c.Pipelines)), []string{"1-a", name}; !slices.Equal(got, want) {
		t.Errorf("pipelines %q; want %q", got, want)
	}
}

func TestDLQ06_DeadLettersStayOutOfTheInput(t *testing.T) {
	golden(t, "dlq06")
	c := good(t, small+"    dead_letter: dlq.orders\n  q: { from: orders.>, steps: a, dead_letter: none }\n", config.LoadOptions{})
	if got := c.Pipelines["p"].DeadLetter; got != "dlq.orders" {
		t.Errorf("dead_letter %q; want dlq.orders", got)
	}
	want := `pipelines.yaml:9:47: pipelines.q.dead_letter: none waives a promise: a message that fails for good is acked, counted and logged, and then it is gone`
	if got := c.Warnings.Error(); got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
}

func TestSEC01_NoSecretInAProblem(t *testing.T) {
	const secret = "s3cret"
	for name, tt := range map[string]struct {
		yaml string
		o    config.LoadOptions
	}{
		"auth":       {yaml: "server: { auth: \"s3cret s3cret\" }\n"},
		"auth list":  {yaml: "server: { auth: [s3cret] }\n"},
		"auth block": {yaml: "server:\n  auth: |\n    s3cret\n"},
		"url":        {yaml: "nats: { url: \"nats://user:s3cret@ho st:4222\" }\n"},
		"variable":   {yaml: "plugins: { a: { module: \"${X}\" } }\npipelines: { p: { from: \"${X} x\", to: \"${X}*\", steps: [\"${X}\"], start: \"${X}\", order: \"${X}\", workers: \"${X}\", ack_wait: \"${X}\" } }\n", o: config.LoadOptions{Env: []string{"X=s3cret"}}},
		"env":        {yaml: small, o: config.LoadOptions{Env: []string{"MQRUN_SERVER__AUTH=s3cret x", "MQRUN_NATS__URL=nats://s3cret@x", "MQRUN_WEB__TOKEN=s3cret"}}},
		"set":        {yaml: small, o: config.LoadOptions{Set: []string{"server.auth=s3cret x", "server.auth:s3cret", "nats.url=s3cret"}}},
		"not yaml":   {yaml: "server:\n  auth: *s3cret\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tt.yaml, tt.o)
			if err == nil {
				t.Fatal("no problem")
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret is in:\n%v", err)
			}
		})
	}
}
