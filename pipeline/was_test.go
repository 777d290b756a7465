package pipeline

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

// TestRenamed: a pipeline that says what it was goes on where that was, live
// and after a restart; what would begin anew is refused.
func TestRenamed(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			yaml := func(name, was string) string {
				return fmt.Sprintf("\nplugins: { a: { module: a.wasm } }\npipelines:\n  %s: { from: \"orders.>\", steps: [a], to: done.orders, commit: %s %s }\n", name, commit, was)
			}
			echo := func(m *host.Message, r *host.Result) error {
				if string(m.Data) == "bad" {
					r.Code = host.Reject
					return nil
				}
				emit(r, "", string(m.Data)+" by "+m.Pipeline)
				return nil
			}
			r := newRig(t, yaml("orders", ""), map[string]native{"a": echo})
			r.pub("orders.a", "1")
			r.read("MQRUN_ORDERS", "done.orders", 1)
			if p := r.apply(yaml("sales", ", was: orders")); p.String() != "restart sales (was orders)" {
				t.Errorf("plan %s", p)
			}
			r.pub("orders.a", "2")
			r.pub("orders.a", "bad")
			out := r.read("MQRUN_ORDERS", "done.orders", 2)
			if got := string(out[1].Data()); got != "2 by sales" {
				t.Errorf("second output %q", got)
			}
			if commit == "each" && !strings.HasPrefix(out[1].Headers().Get("Nats-Msg-Id"), "orders:MQRUN:") {
				t.Errorf("id %q; want that of the first name", out[1].Headers().Get("Nats-Msg-Id"))
			}
			if h := r.read("MQRUN_DLQ", "dlq.sales", 1)[0].Headers(); h.Get("Mqrun-Pipeline") != "orders" {
				t.Errorf("dead letter of %q; want the name that replays go by", h.Get("Mqrun-Pipeline"))
			}
			for name, bad := range map[string]string{
				"without was":     yaml("sales", ""),
				"after the wrong": yaml("trade", ", was: sales"),
			} {
				_, err := r.m.Apply(t.Context(), r.load(bad))
				if ps, ok := errors.AsType[config.Problems](err); !ok || !strings.Contains(ps.Error(), "write was: orders") {
					t.Errorf("%s: %v", name, err)
				}
			}
			r.stopManager()
			r.restartManager(yaml("trade", ", was: orders"))
			r.pub("orders.a", "3")
			if got := string(r.read("MQRUN_ORDERS", "done.orders", 3)[2].Data()); got != "3 by trade" {
				t.Errorf("third output %q", got)
			}
			if p := r.apply(yaml("orders", "")); p.String() != "restart orders (was trade)" {
				t.Errorf("plan %s", p)
			}
			r.pub("orders.a", "4")
			if got := string(r.read("MQRUN_ORDERS", "done.orders", 4)[3].Data()); got != "4 by orders" {
				t.Errorf("fourth output %q", got)
			}
			r.idle("orders")
			if n := r.count("MQRUN_ORDERS", "done.orders"); n != 4 {
				t.Errorf("%d outputs, want 4", n)
			}
		})
	}
}

// TestPlan_everyKey: whatever key of the configuration changes, the plan says
// what becomes of it: nothing is passed over.
func TestPlan_everyKey(t *testing.T) {
	base := func() *config.Config {
		return &config.Config{
			Streams:   map[string]*config.Stream{"S": {Name: "S"}},
			Plugins:   map[string]*config.Plugin{"a": {Name: "a"}},
			Pipelines: map[string]*config.Pipeline{"p": {Name: "p", From: []string{"x"}, Steps: []string{"a"}}},
		}
	}
	free := map[string]string{ // what needs no plan, and why
		"Plugin.Rollout": "is read at the next change of the module",
		"Stream.Keep":    "the janitor asks each time",
	}
	for _, part := range []struct {
		name string
		of   func(*config.Config) any
	}{
		{"Pipeline", func(c *config.Config) any { return c.Pipelines["p"] }},
		{"Plugin", func(c *config.Config) any { return c.Plugins["a"] }},
		{"Stream", func(c *config.Config) any { return c.Streams["S"] }},
		{"Server", func(c *config.Config) any { return &c.Server }},
		{"NATS", func(c *config.Config) any { return &c.NATS }},
		{"Web", func(c *config.Config) any { return &c.Web }},
		{"Host", func(c *config.Config) any { return &c.Host }},
	} {
		typ := reflect.TypeOf(part.of(base())).Elem()
		for i := range typ.NumField() {
			key := part.name + "." + typ.Field(i).Name
			if !typ.Field(i).IsExported() || typ.Field(i).Name == "Name" || free[key] != "" {
				continue
			}
			old, next := base(), base()
			alter(t, reflect.ValueOf(part.of(next)).Elem().Field(i))
			if startProblems(old, next) != nil {
				continue // it is refused
			}
			plan := diff(old, next, func(*config.Pipeline) bool { return old.Plugins["a"].Hash() == next.Plugins["a"].Hash() }, func(string) bool { return true })
			if !plan.Changed() && plan.Restarting == "" {
				t.Errorf("%s: changed, and the plan says %q", key, plan)
			}
		}
	}
}

// alter gives v another value.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + int64(time.Second))
	case reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.5)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("x"))
			return
		}
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
		alter(t, v.Index(v.Len()-1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
	case reflect.Struct:
		alter(t, v.Field(0))
	default:
		t.Fatalf("a key of kind %s", v.Kind())
	}
}
