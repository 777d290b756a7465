package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/mqrun/mqrun/subject"
)

// shortStep is a step of anyGuest as the fuzzer sees it: an index and nine
// numbers of 32 bits, which become the low halves.
const shortStep = 1 + 4*anyArgs

// shorten writes a message of anyGuest's for the fuzzer.
func (a *anyCalls) shorten() []byte {
	n := len(a.steps) / anyStep
	b := []byte{byte(n)}
	for i := range n {
		step := a.steps[i*anyStep:]
		b = append(b, step[0])
		for k := range anyArgs {
			b = append(b, step[8+8*k:][:4]...)
		}
	}
	return append(b, a.text...)
}

// lengthen is the opposite, for any bytes.
func lengthen(b []byte) *anyCalls {
	a := &anyCalls{}
	if len(b) == 0 {
		return a
	}
	n := int(b[0])%anySteps + 1
	b = b[1:]
	all := uint64(len(everyImport()))
	for ; n > 0 && len(b) >= shortStep; n-- {
		a.steps = binary.LittleEndian.AppendUint64(a.steps, uint64(b[0])%all)
		for k := range anyArgs {
			v := binary.LittleEndian.Uint32(b[1+4*k:])
			a.steps = binary.LittleEndian.AppendUint64(a.steps, uint64(int64(int32(v))))
		}
		b = b[shortStep:]
	}
	a.text = b
	return a
}

// anySeeds is a good call of every function that takes text.
func anySeeds() []*anyCalls {
	var a, b, c, d anyCalls
	const room = anyText + 8192
	subj, sn := a.str("orders.done")
	name, nn := a.str("Content-Type")
	text, tn := a.str("text/plain")
	a.call("input", room, 100).call("meta", 0, room, 100).call("meta_i64", 1).call("header", name, nn, 0, room, 100).call("headers", room, 1000).
		call("config", 0, 0, room, 100).call("emit_header", name, nn, text, tn).call("emit", subj, sn, text, tn).call("emit", 0, 0, 0, 100).
		call("reason", text, tn).call("retry_after", 5).call("log", 1, text, tn)
	bucket, bn := b.str("state")
	key, kn := b.str("a.b")
	b.call("kv_put", bucket, bn, key, kn, bucket, bn).call("kv_get", bucket, bn, key, kn, room, 2).call("kv_get", bucket, bn, key, kn, room, 9).
		call("kv_revision").call("kv_create", bucket, bn, key, kn, key, kn).call("kv_update", bucket, bn, key, kn, key, kn, 1).call("kv_delete", bucket, bn, key, kn)
	iov, _ := c.str("\x00\x20\x00\x00\x08\x00\x00\x00")
	c.call("fd_write", 1, iov, 1, room).call("random_get", room, 64).call("clock_time_get", 0, 0, room).call("args_sizes_get", room, room+4).
		call("args_get", room, room+64).call("environ_get", room, room+64).call("fd_read", 0, iov, 1, room).call("poll_oneoff", iov, room, 1, room+64)
	path, pn := d.str("/etc/passwd")
	d.call("path_open", 3, 0, path, pn, 0, 1, 1, 0, room).call("fd_prestat_get", 3, room).call("abort", path, pn, 1, 2).call("proc_exit", 1)
	return []*anyCalls{&a, &b, &c, &d}
}

// FuzzHostFunctions calls any host functions with any numbers: the call ends with
// a verdict or with the guest's failure, never with ours, and nothing gets out
// that a guest may not say.
func FuzzHostFunctions(f *testing.F) {
	for _, s := range anySeeds() {
		f.Add(s.shorten())
	}
	limits := Limits{Timeout: 20 * time.Millisecond, Outputs: 5, OutputBytes: 64 << 10, ReasonBytes: 100, LogLines: 8, LogBytes: 4 << 10, Memory: anyPages * pageSize}
	r, err := New(f.Context(), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = r.Close(context.Background()) })
	s := Settings{Workers: 1, Limits: limits, Publish: []string{"orders.>", "dlq.>"}, Config: map[string]string{"key": "value"}, Env: map[string]string{"A": "b"}}
	p := anyPlugin(f, r, s)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, res := lengthen(b).message(), &Result{}
		m.Header = map[string][]string{"A": {"1", "2"}, "a": {"3"}, "Nats-Msg-Id": {"secret"}}
		m.Deny = []string{"dlq.>"}
		if err := p.Handle(t.Context(), m, res); err != nil {
			var ce *CallError
			if !errors.As(err, &ce) || strings.Contains(ce.Text, "mqrun itself") || strings.ContainsAny(ce.Text, "\r\n") {
				t.Fatalf("%v", err)
			}
		}
		check := func(ok bool, what string) {
			if !ok {
				t.Fatalf("%s: %+v", what, res)
			}
		}
		check(len(res.Outputs) <= limits.Outputs, "too many outputs")
		total := 0
		for _, o := range res.Outputs {
			check(o.Subject == "" || subject.Valid(o.Subject) == nil && !subject.Reserved(o.Subject) && !strings.HasPrefix(o.Subject, "dlq."), "a subject")
			total += len(o.Subject) + len(o.Data)
			check(!bytes.Contains(o.Data, []byte("secret")), "a hidden header")
			for _, h := range o.Header {
				total += len(h.Name) + len(h.Value)
				check(validName([]byte(h.Name)) && !hidden(h.Name) && !strings.ContainsAny(h.Value, "\r\n\x00"), "a header")
			}
		}
		check(int64(total) <= limits.OutputBytes, "too many bytes")
		check(len(res.Reason) <= limits.ReasonBytes && !strings.ContainsAny(res.Reason, "\r\n\x00"), "the reason")
		check(len(res.Log) <= MaxLogTail, "the log")
		check(r.gate.running() == 0, "a lost turn")
	})
}

// FuzzInspect reads any bytes as a module that speaks the ABI: they are refused in
// one line, or are what the compiler takes for that module too.
func FuzzInspect(f *testing.F) {
	for _, pattern := range []string{"testdata/*.wasm", "testdata/hostile/*.wasm"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			f.Add(guest(f, strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(p), "testdata/"), ".wasm")))
		}
	}
	f.Add(anyGuest())
	for _, i := range everyImport() {
		f.Add(wrongImport(i.module, i.Name))
	}
	ctx := context.Background()
	config := wazero.NewRuntimeConfigCompiler().WithCoreFeatures(features).WithMemoryLimitPages(1024)
	f.Fuzz(func(t *testing.T, wasm []byte) {
		if len(wasm) > 1<<16 {
			t.Skip("large")
		}
		facts, err := Inspect("x.wasm", wasm)
		capped, cerr := capTables(wasm, 100)
		if err != nil {
			if s := err.Error(); !strings.HasPrefix(s, "x.wasm ") || strings.ContainsAny(s, "\r\n") {
				t.Fatalf("%q", s)
			}
			return
		}
		r := wazero.NewRuntimeWithConfig(ctx, config)
		defer func() { _ = r.Close(ctx) }()
		m, werr := r.CompileModule(ctx, wasm)
		if werr != nil {
			return
		}
		if h := m.ExportedFunctions()[ExportHandle]; h == nil || !bytes.Equal(h.ParamTypes(), []byte{api.ValueTypeI32}) || !bytes.Equal(h.ResultTypes(), []byte{api.ValueTypeI32}) {
			t.Fatalf("%+v has no %s", facts, ExportHandle)
		}
		if n := len(m.ImportedFunctions()); n > len(facts.Imports) {
			t.Fatalf("%d imports; %d were seen", n, len(facts.Imports))
		}
		if cerr == nil && facts.TableMin <= 100 {
			if _, err := r.CompileModule(ctx, capped); err != nil {
				t.Fatalf("with its tables bounded: %v", err)
			}
		}
	})
}
