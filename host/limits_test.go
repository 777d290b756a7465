package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDefaultLimits(t *testing.T) {
	want := Limits{64 << 20, 5 * time.Second, 5 * time.Second, 0, 900, 8 << 20, 64, 64 << 10, 1 << 10, 65536, 32 << 20}
	if got := DefaultLimits(); got != want {
		t.Errorf("%+v", got)
	}
	if got := (Limits{}).orDefault(); got != want {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestLimitsThatRefuseToLoad(t *testing.T) {
	r := open(t, Options{})
	for _, tt := range []struct {
		guest  string
		limits Limits
		want   string
	}{
		{"memory-max", Limits{Memory: 1 << 20}, `load plugin "orders": orders.wasm needs at least 256 pages (16 MiB) of memory; the limit is 1 MiB (plugins.orders.limits.memory)`},
		{"bad-table", Limits{}, `load plugin "orders": orders.wasm needs a table of at least 70000 elements; the limit is 65536 (plugins.orders.limits.table)`},
		{"probe", Limits{Module: 1000}, `load plugin "orders": orders.wasm has 1.8 KiB; the limit is 1000 bytes (plugins.orders.limits.module)`},
	} {
		_, err := r.Load(t.Context(), guest(t, tt.guest), Settings{Name: "orders", File: "orders.wasm", Limits: tt.limits})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", tt.guest, err, tt.want)
		}
	}
}

func TestWSM12_MemoryCapBelowTheModulesDeclaredMaximum(t *testing.T) {
	p := load(t, "memory-max", Settings{Limits: Limits{Memory: 32 << 20}})
	if res := run(t, p, message("")); res.Code != -1 {
		t.Errorf("a page beyond 32 MiB: %d, want -1", res.Code)
	}
	_, err := open(t, Options{}).Load(t.Context(), guest(t, "memory-max"), Settings{Name: "m", Limits: Limits{Memory: 8 << 20}})
	if err == nil || !strings.Contains(err.Error(), "needs at least 256 pages (16 MiB) of memory; the limit is 8 MiB") {
		t.Errorf("minimum over the cap: %v", err)
	}
}

func TestTableLimit(t *testing.T) {
	p := load(t, "probe", Settings{Limits: Limits{Table: 10}})
	for grow, want := range map[uint32]int32{10: -1, 1 << 31: -1, 9: 1} {
		p.SetWorkers(1)
		if res := run(t, p, (&script{}).do(opTableGrow, grow).message()); res.Code != want {
			t.Errorf("table.grow %d: %d, want %d", grow, res.Code, want)
		}
		if want == 1 {
			break // it is full now
		}
	}
}

func TestMemoryLimitEndsInMinusOne(t *testing.T) {
	p := load(t, "probe", Settings{Limits: Limits{Memory: 1 << 20}})
	if res := run(t, p, (&script{}).do(opGrow, 13).message()); res.Code != -1 {
		t.Errorf("grow beyond the limit: %d", res.Code)
	}
	if res := run(t, p, (&script{}).do(opGrow, 12).message()); res.Code != 4 {
		t.Errorf("grow to the limit: %d", res.Code)
	}
}

func TestTrapWithFullMemoryIsMemory(t *testing.T) {
	p := load(t, "probe", Settings{Limits: Limits{Memory: 1 << 20}})
	err := p.Handle(t.Context(), (&script{}).do(opGrow, 12).do(opTrap).message(), &Result{})
	var ce *CallError
	if !errors.As(err, &ce) || ce.Reason != ReasonMemory || ce.Text != "probe: message 17 of INGEST ran out of memory (limit 1 MiB): unreachable in trap" {
		t.Errorf("%v", err)
	}
}

func TestInitLimit(t *testing.T) {
	for mode, want := range map[string]string{
		"spin": `load plugin "init": init: timed out after 200ms (in $5) while starting (plugins.init.limits.init)`,
		"fail": `load plugin "init": init: mq_init returned 7: no database`,
		"trap": `load plugin "init": init: trapped: unreachable`,
		"emit": `load plugin "init": init: mq_init returned -3`,
	} {
		_, err := open(t, Options{}).Load(t.Context(), guest(t, "init"), Settings{Name: "init", Config: map[string]string{"mode": mode}, Limits: Limits{Init: 200 * time.Millisecond}})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", mode, err, want)
		}
	}
	p := load(t, "init", Settings{})
	for range 3 { // once per instance, not per message
		if res := run(t, p, message("")); res.Code != 11 {
			t.Errorf("_initialize and mq_init ran %d times", res.Code)
		}
	}
}

func TestStartSection(t *testing.T) {
	if res := run(t, load(t, "start-section", Settings{}), message("")); res.Code != ErrnoInvalid {
		t.Errorf("emit before a message: %d", res.Code)
	}
	_, err := open(t, Options{}).Load(t.Context(), guest(t, "start-trap"), Settings{Name: "s"})
	if err == nil || !strings.Contains(err.Error(), "unreachable") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestStartInPlaceOfInitialize(t *testing.T) {
	if res := run(t, load(t, "both", Settings{Start: "_start"}), message("")); res.Code != 3 {
		t.Errorf("_start did not run: %d", res.Code)
	}
}

func TestLoadIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t, Options{}).Load(ctx, guest(t, "echo"), Settings{Name: "e"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
