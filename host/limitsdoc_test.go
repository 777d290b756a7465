package host

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	conf "github.com/mqrun/mqrun/config" // config is one of our functions
	"github.com/mqrun/mqrun/host/meter"
	"github.com/mqrun/mqrun/subject"
)

// limitsPage gives the rows of docs/limits.md by their first cell.
func limitsPage(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimSpace(l); !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| key") || strings.HasPrefix(l, "| limit |") {
			continue
		}
		cells := strings.Split(strings.Trim(l, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows[cells[0]] = cells
	}
	return rows
}

// says reports whether a text has what the page says; N is any number.
func says(text, page string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(page), "N ", "[0-9]+ ")
	return regexp.MustCompile(strings.ReplaceAll(pattern, "NAME", "[a-z]+")).MatchString(text)
}

// limitFields gives the keys of Limits in the order of its fields.
func limitFields() (keys []string) {
	for i := range reflect.TypeFor[Limits]().NumField() {
		name := reflect.TypeFor[Limits]().Field(i).Name
		keys = append(keys, strings.ToLower(regexp.MustCompile(`(.)([A-Z])`).ReplaceAllString(name, "${1}_$2")))
	}
	return keys
}

// Each limit is on the page, with the default that both packages have, the most that
// the configuration takes, and the text that it gives.
func TestLimitsOfAPluginAreDocumented(t *testing.T) {
	rows := limitsPage(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "echo.wasm"), guest(t, "echo"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(limit string) (*conf.Config, error) {
		file := filepath.Join(dir, "pipelines.yaml")
		text := "plugins: { p: { module: echo.wasm, " + limit + " } }\npipelines: { p: { from: ingest.a, steps: [p], to: b } }\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return conf.Load(conf.LoadOptions{Files: []string{file}})
	}
	cfg, err := read("recycle: 100000")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := reflect.ValueOf(DefaultLimits()), reflect.ValueOf(cfg.Plugins["p"].Limits)
	for i, key := range limitFields() {
		row, v := rows[key], ours.Field(i)
		if len(row) != 6 {
			t.Errorf("docs/limits.md has no row %q, or not six cells: %q", key, row)
			continue
		}
		if got := theirs.FieldByName(ours.Type().Field(i).Name); got.Int() != v.Int() {
			t.Errorf("%s: config has %v, host %v", key, got, v)
		}
		bytesOf := key == "memory" || key == "module" || strings.HasSuffix(key, "_bytes")
		if want := shownLimit(v, bytesOf); row[1] != want {
			t.Errorf("%s: the default is %s; the page says %s", key, want, row[1])
		}
		if row[2] == "" {
			continue
		}
		most := strings.ReplaceAll(row[2], " ", "")
		if _, err := read("limits: { " + key + ": " + most + " }"); err != nil {
			t.Errorf("%s: the page allows %s: %v", key, most, err)
		}
		if _, err := read("limits: { " + key + ": " + regexp.MustCompile(`^\d+`).ReplaceAllString(most, "${0}1") + " }"); err == nil {
			t.Errorf("%s: more than %s is taken", key, most)
		}
	}
	if !cfg.Plugins["p"].Limits.Meter || rows["meter"][1] != "on" || rows["plugins.NAME.recycle"][1] != fmt.Sprint(cfg.Plugins["p"].Recycle) {
		t.Errorf("%q %q", rows["meter"], rows["plugins.NAME.recycle"])
	}
	if rows["host.memory"][1] != bytesText(cfg.Host.Memory) || rows["host.running"][1] != "one a core" || cap(make([]int, cfg.Host.Running)) != 0 || open(t, Options{}).gate.max != runtime.GOMAXPROCS(0) {
		t.Errorf("%q %q", rows["host.memory"], rows["host.running"])
	}
}

func shownLimit(v reflect.Value, bytesOf bool) string {
	switch {
	case v.Int() == 0:
		return "none"
	case v.Type() == reflect.TypeFor[time.Duration]():
		return v.Interface().(time.Duration).String()
	case bytesOf:
		return bytesText(v.Int())
	}
	return fmt.Sprint(v.Int())
}

// provoked is what a limit says when it is met. given is the limit in its text, when
// the test did not wait for the default.
type provoked struct{ given, text string }

func TestTextsOfLimitsAreDocumented(t *testing.T) {
	rows := limitsPage(t)
	var log bytes.Buffer
	r := open(t, Options{Memory: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	call := func(l Limits, s *script) string {
		t.Helper()
		p, err := r.Load(t.Context(), guest(t, "probe"), Settings{Name: "probe", Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		res := &Result{}
		if err := p.Handle(t.Context(), s.message(), res); err != nil {
			return err.Error()
		}
		return res.EmitError
	}
	refused := func(wasm []byte, s Settings) string {
		t.Helper()
		s.Name, s.File = "p", "p.wasm"
		_, err := r.Load(t.Context(), wasm, s)
		return fmt.Sprint(err)
	}
	rewritten := func(wasm []byte) string {
		_, _, err := meter.Rewrite(wasm, meter.Options{MaxFunctions: maxFunctions})
		return fmt.Sprint(err)
	}
	lines, headers := &script{}, (&script{}).do(opConst, 0)
	long, n := lines.str(strings.Repeat("x", MaxLogLine+1))
	for range 5 {
		lines.do(opLog, LogInfo, long, n)
	}
	name, _ := headers.str("A")
	for range MaxHeaders + 1 {
		headers.do(opEmitHeader, name, 1, name, 1)
	}
	call(Limits{LogLines: 4}, lines)
	// TestHostileGuests holds the host to it.
	all := hostiles()
	slow := all[slices.IndexFunc(all, func(h hostile) bool { return h.name == "a compile bomb" })].load
	for name, got := range map[string]provoked{
		"memory":       {"1 MiB", call(Limits{Memory: 1 << 20}, (&script{}).do(opGrow, 12).do(opTrap))},
		"timeout":      {"50ms", call(Limits{Timeout: 50 * time.Millisecond}, (&script{}).do(opSpin))},
		"init":         {"", refused(guest(t, "init"), Settings{Config: map[string]string{"mode": "spin"}, Limits: Limits{Init: 20 * time.Millisecond}})},
		"fuel":         {"", call(Limits{Fuel: 50_000}, (&script{}).do(opSpin))},
		"outputs":      {"1", call(Limits{Outputs: 1}, (&script{}).emit("", "x").emit("", "y").ok())},
		"output_bytes": {"8 bytes", call(Limits{OutputBytes: 8}, (&script{}).emit("", "a long output").ok())},
		"log_lines":    {"", log.String()},
		"log_bytes":    {"", log.String()},
		"table":        {"", refused(guest(t, "hostile/table-huge"), Settings{})},
		"module":       {"100 bytes", refused(guest(t, "probe"), Settings{Limits: Limits{Module: 100}})},
		"meter":        {"", refused(guest(t, "hostile/wait"), Settings{})},
		"host.memory":  {"1 MiB", call(Limits{}, (&script{}).do(opGrow, 12).do(opGrow, 1).do(opTrap))},

		"headers of one output":                   {"", call(Limits{}, headers)},
		"subject of an output":                    {"", call(Limits{}, (&script{}).emit(strings.Repeat("x", subject.MaxLen+1), ""))},
		"one line of log":                         {"", log.String()},
		"stack of a guest":                        {"", call(Limits{Timeout: time.Minute}, (&script{}).do(opRecurse))},
		"time to compile one module":              {"100ms", slow},
		"functions of one module":                 {"", rewritten(manyFunctions(maxFunctions))},
		"code of one function":                    {"", rewritten(oneFunction(0, bytes.Repeat([]byte{1}, 8_000_000)))},
		"locals of one function":                  {"", rewritten(oneFunction(50_001, nil))},
		"loops of one function":                   {"", rewritten(oneFunction(0, bytes.Repeat([]byte{opcLoop, empty, opcEnd}, 65_537)))},
		"blocks in one another":                   {"", rewritten(deepBlocks(16_385))},
		"targets of one `br_table":                {"", rewritten(manyTargets(65_521))},
		"parameters, or results, of one function": {"", rewritten(wideType(1001))},
		"tables of one module":                    {"", rewritten(withSection(4, 65, 0x70, 0, 0))},
		"globals of one module":                   {"", rewritten(withSection(6, 100_001, 0x7f, 0, opcConst, 0, opcEnd))},
		"segments of elements, and of data after neighbours are merged":       {"", rewritten(withSection(9, 100_001, 1, 0, 0))},
		"elements in all segments":                                            {"", rewritten(withSection(9, 3000, append([]byte{1, 0, 100}, make([]byte, 100)...)...))},
		"segments and tables that bulk instructions name":                     {"", rewritten(manyInits(1001))},
		"blocks and locals of all functions, by what compiling them may take": {"", rewritten(manyLoops(20_000, 1000))},
	} {
		row := rows[name]
		if row == nil {
			t.Errorf("docs/limits.md has no row %q", name)
			continue
		}
		want := row[len(row)-1]
		if got.given != "" {
			want = strings.ReplaceAll(want, row[1], got.given)
		}
		if want == "" || !says(got.text, want) {
			t.Errorf("%s says\n %s\nthe page\n %s", name, got.text, want)
		}
		delete(rows, name)
	}
	values := map[string]string{
		"key of a KV bucket": fmt.Sprint(maxKey, " bytes"), "delay of `retry_after": (MaxRetryAfterMillis * time.Millisecond).String(),
		"log kept for a dead letter": bytesText(MaxLogTail), "text of a panic": bytesText(MaxPanicText),
		"pieces of one `fd_write": fmt.Sprint(maxIovs), "subscriptions of one `poll_oneoff": fmt.Sprint(maxPoll),
		"instructions between two looks at the clock": fmt.Sprint(interval),
		"reason_bytes": "1 KiB", "plugins.NAME.recycle": "100000", "host.running": "one a core",
	}
	for name, row := range rows { // those that have no text
		if want, ok := values[name]; !ok || row[1] != want || row[len(row)-1] != "" {
			t.Errorf("%q: %q, want %q and no text", name, row, want)
		}
	}
	fixed := limitsPage(t)
	for name, want := range map[string]string{
		"headers of one output": fmt.Sprint(MaxHeaders), "subject of an output": fmt.Sprint(subject.MaxLen, " bytes"), "one line of log": bytesText(MaxLogLine),
		"stack of a guest": bytesText(maxStack), "time to compile one module": open(t, Options{}).compileLimit.String(), "functions of one module": fmt.Sprint(maxFunctions),
	} {
		if fixed[name][1] != want {
			t.Errorf("%s is %s; the page says %s", name, want, fixed[name][1])
		}
	}
	page, err := os.ReadFile("../docs/limits.md")
	if err != nil || !bytes.Contains(page, []byte("at most "+bytesText(maxCache))) || !bytes.Contains(page, []byte(fmt.Sprintf("not used for %d days", maxIdle/(24*time.Hour)))) {
		t.Errorf("the page on the compile cache: %v", err)
	}
}

// oneFunction has mq_handle alone, with so many locals and this code.
func oneFunction(locals uint32, code []byte) []byte {
	m := newModule(1)
	m.handle = m.add(typeHandle, locals, append(code, opcConst, 0)...)
	return m.bytes()
}

// withSection has a section of n equal entries.
func withSection(id byte, n int, entry ...byte) []byte {
	m := newModule(1)
	m.extra[id] = append(leb(nil, uint64(n)), bytes.Repeat(entry, n)...)
	m.handle = m.add(typeHandle, 0, opcConst, 0)
	return m.bytes()
}

// wideType has a function type of n parameters.
func wideType(n int) []byte {
	m := newModule(1)
	m.types = append(m.types, append(append(leb([]byte{0x60}, uint64(n)), bytes.Repeat([]byte{0x7f}, n)...), 0))
	m.handle = m.add(typeHandle, 0, opcConst, 0)
	return m.bytes()
}

// manyInits copies from n passive data segments.
func manyInits(n int) []byte {
	m := newModule(1)
	m.extra[12] = leb(nil, uint64(n))
	m.extra[11] = append(leb(nil, uint64(n)), bytes.Repeat([]byte{1, 0}, n)...)
	var code []byte
	for i := range n {
		code = append(leb(append(code, opcConst, 0, opcConst, 0, opcGet, 0, 0xfc, 8), uint64(i)), 0)
	}
	m.handle = m.add(typeHandle, 0, append(code, opcConst, 0)...)
	return m.bytes()
}
