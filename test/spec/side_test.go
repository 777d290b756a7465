package spec

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/mqrun/mqrun/host/meter"
)

// command of a script, in wast2json's form.
type command struct {
	Type       string
	Line       int
	Name       string
	Filename   string
	As         string
	ModuleType string `json:"module_type"`
	Action     struct {
		Type   string
		Module string
		Field  string
		Args   []value
	}
}

type value struct {
	Type     string
	LaneType string `json:"lane_type"`
	Value    any
}

// skipped: a module in text form, which nobody here reads.
const skipped = "skipped"

// side runs a script on modules as they are, or metered.
type side struct {
	dir     string
	options meter.Options
	metered bool
	runtime wazero.Runtime
	modules map[string]api.Module
	last    api.Module
	refusal string // of the last module, by the rewriter
}

func newSide(ctx context.Context, t *testing.T, dir string, features api.CoreFeatures, metered bool) *side {
	s := &side{dir: dir, metered: metered, modules: map[string]api.Module{}}
	s.options = meter.Options{Merge: true}
	if features.IsEnabled(api.CoreFeatureReferenceTypes) {
		s.options.LazyTables = 1 // as many as can be
	}
	s.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCoreFeatures(features))
	t.Cleanup(func() { _ = s.runtime.Close(ctx) })
	if metered {
		// As little as may be given, so that there are many ticks.
		tick := api.GoFunc(func(_ context.Context, stack []uint64) { stack[0] = meter.MinRefill })
		_, err := s.runtime.NewHostModuleBuilder(meter.ImportModule).NewFunctionBuilder().
			WithGoFunction(tick, nil, []api.ValueType{api.ValueTypeI32}).Export(meter.ImportTick).Instantiate(ctx)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.instantiate(ctx, filepath.Join(dir, "../../testdata/spectest.wasm"), "spectest"); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *side) instantiate(ctx context.Context, path, as string) (api.Module, error) {
	s.refusal = ""
	wasm, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if s.metered {
		if wasm, _, err = meter.Rewrite(wasm, s.options); err != nil {
			s.refusal = err.Error()
			return nil, err
		}
	}
	return s.runtime.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(as))
}

// run gives how a command ends, in a form that both sides have in common.
func (s *side) run(ctx context.Context, c *command, as string) string {
	s.refusal = ""
	switch c.Type {
	case "module":
		mod, err := s.instantiate(ctx, filepath.Join(s.dir, c.Filename), as)
		s.last = mod
		if c.Name != "" {
			s.modules[c.Name] = mod
		}
		if err != nil {
			return err.Error()
		}
		return ""
	case "register":
		return skipped
	case "assert_malformed", "assert_invalid", "assert_unlinkable", "assert_uninstantiable":
		if c.ModuleType == "text" {
			return skipped
		}
		if _, err := s.instantiate(ctx, filepath.Join(s.dir, c.Filename), ""); err == nil {
			return "instantiated"
		}
		return "no instance"
	}
	mod := s.target(c)
	if mod == nil {
		return "no module"
	}
	if s.metered {
		mod.ExportedGlobal(meter.ExportBudget).(api.MutableGlobal).Set(0)
	}
	if c.Action.Type == "get" {
		return strconv.FormatUint(mod.ExportedGlobal(c.Action.Field).Get(), 16)
	}
	return invoke(ctx, mod.ExportedFunction(c.Action.Field), c)
}

func (s *side) target(c *command) api.Module {
	if c.Action.Module != "" {
		return s.modules[c.Action.Module]
	}
	return s.last
}

// gone: the module that c acts on, or is, was refused.
func (s *side) gone(c *command) bool {
	return c.Action.Type != "" && s.target(c) == nil
}

func invoke(ctx context.Context, f api.Function, c *command) string {
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.bits()...)
	}
	results, err := f.Call(ctx, args...)
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n") // the trace follows
		return text
	}
	var out strings.Builder
	at := 0
	for _, t := range f.Definition().ResultTypes() {
		fmt.Fprintf(&out, " %s:", api.ValueTypeName(t))
		switch v := results[at]; {
		case t == 0x7b: // v128
			fmt.Fprintf(&out, "%x,%x", v, results[at+1])
			at++
		case t == api.ValueTypeI32:
			fmt.Fprintf(&out, "%x", uint32(v))
		case t == api.ValueTypeF32 && math.IsNaN(float64(api.DecodeF32(v))), t == api.ValueTypeF64 && math.IsNaN(api.DecodeF64(v)):
			out.WriteString("NaN")
		case t == api.ValueTypeI64, t == api.ValueTypeF32, t == api.ValueTypeF64, t == api.ValueTypeExternref:
			fmt.Fprintf(&out, "%x", v)
		default: // an address
			fmt.Fprint(&out, v == 0)
		}
		at++
	}
	return out.String()
}

func (v value) bits() []uint64 {
	lanes, ok := v.Value.([]any)
	if !ok {
		return []uint64{number(v.Type, fmt.Sprint(v.Value))}
	}
	width := map[string]uint{"i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}[v.LaneType]
	var both [2]uint64
	for i, lane := range lanes {
		bit := uint(i) * width
		both[bit/64] |= number(v.LaneType, lane.(string)) << (bit % 64) & mask(width, bit%64)
	}
	return both[:]
}

func mask(width, shift uint) uint64 { return ^uint64(0) >> (64 - width) << shift }

func number(typ, text string) uint64 {
	switch {
	case text == "null", text == "<nil>":
		return 0
	case typ == "externref":
		n, _ := strconv.ParseUint(text, 10, 64)
		return n + 1 // 0 is null
	case strings.HasPrefix(text, "-"):
		n, _ := strconv.ParseInt(text, 10, 64)
		return uint64(n)
	default:
		n, _ := strconv.ParseUint(text, 10, 64)
		return n
	}
}
