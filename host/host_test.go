package host

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest gives the bytes of a module of testdata.
func guest(t testing.TB, name string) []byte {
	t.Helper()
	wasm, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

// open makes a runtime that the test closes.
func open(t testing.TB, o Options) *Runtime {
	t.Helper()
	r, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// load starts the module of testdata under the name of its file.
func load(t testing.TB, name string, s Settings) *Plugin {
	t.Helper()
	if s.Name == "" {
		s.Name = name
	}
	s.File = name + ".wasm"
	p, err := open(t, Options{}).Load(t.Context(), guest(t, name), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func message(data string) *Message {
	return &Message{Subject: "orders.new", Stream: "INGEST", Pipeline: "orders", To: "orders.out", Data: []byte(data), Sequence: 17, Attempt: 2, MaxAttempts: 5, Last: true}
}

func TestEcho(t *testing.T) {
	p := load(t, "echo", Settings{})
	var res Result
	for _, data := range []string{"hello", "", "again"} {
		if err := p.Handle(t.Context(), message(data), &res); err != nil {
			t.Fatal(err)
		}
		if res.Code != OK || len(res.Outputs) != 1 || !bytes.Equal(res.Outputs[0].Data, []byte(data)) {
			t.Errorf("echo of %q: %+v", data, res)
		}
	}
}

func TestHandleAllocatesNothing(t *testing.T) {
	p := load(t, "echo", Settings{Workers: 1})
	m, res := message("hello"), &Result{}
	if n := testing.AllocsPerRun(200, func() {
		if err := p.Handle(t.Context(), m, res); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func BenchmarkEcho(b *testing.B) {
	p := load(b, "echo", Settings{})
	m, res := message("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"), &Result{}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Handle(b.Context(), m, res); err != nil {
			b.Fatal(err)
		}
	}
}
