package host_test

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/mqrun/mqrun/host"
)

func TestInspectNamesProducers(t *testing.T) {
	module, err := os.ReadFile("testdata/echo.wasm")
	if err != nil {
		t.Fatal(err)
	}
	section := func(body string) []byte {
		return append(slices.Clone(module), append([]byte{0, byte(len(body))}, body...)...)
	}
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{"two fields", "\x09producers\x02\x08language\x01\x01C\x0299\x0cprocessed-by\x01\x05clang\x0219", []string{"C 99", "clang 19"}},
		{"no version", "\x09producers\x01\x03sdk\x01\x01x\x00", []string{"x"}},
		{"another section", "\x04name\x01", nil},
		{"damaged", "\x09producers\x05\x01", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := host.Inspect("m.wasm", section(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(f.Producers, tt.want) {
				t.Errorf("%q, want %q", f.Producers, tt.want)
			}
		})
	}
}

func TestInspectGivesFactsOfWhatCannotRun(t *testing.T) {
	module, err := os.ReadFile("testdata/bad-typo.wasm")
	if err != nil {
		t.Fatal(err)
	}
	f, err := host.Inspect("bad.wasm", module)
	if err == nil || f == nil || len(f.Imports) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if host.Offers(f.Imports[0]) {
		t.Errorf("it offers %v", f.Imports[0])
	}
	if good := (host.Import{Module: host.ABIv1, Name: "emit", Kind: "func", Signature: "(i32, i32, i32, i32) -> i32"}); !host.Offers(good) {
		t.Errorf("it does not offer %v", good)
	}
}

func TestResultTellsFuelAndMemory(t *testing.T) {
	module, err := os.ReadFile("testdata/echo.wasm")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.New(t.Context(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	used := func(fuel int64) host.Result {
		l := host.DefaultLimits()
		l.Fuel = fuel
		p, err := rt.Load(t.Context(), module, host.Settings{Name: "echo", Limits: l, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		var res host.Result
		if err := p.Handle(t.Context(), &host.Message{Subject: "a", To: "b", Last: true, Data: []byte("x")}, &res); err != nil {
			t.Fatal(err)
		}
		return res
	}
	if r := used(math.MaxInt64); r.Fuel < 5 || r.Fuel > 100 || r.Memory != 32*64<<10 {
		t.Errorf("fuel %d, memory %d of a guest with a dozen instructions and 32 pages", r.Fuel, r.Memory)
	}
	if r := used(0); r.Fuel != 0 {
		t.Errorf("fuel %d without a limit", r.Fuel)
	}
}
