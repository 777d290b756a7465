package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/watch"
)

// watching applies what the watcher tells, as mqrun does, until it is stopped.
type watching struct {
	*rig
	watcher  *watch.Watcher
	calls    [2]atomic.Int64 // of the modules v0 and v1
	problems atomic.Int64
}

func scenarioYAML(commit string, version int) string {
	return fmt.Sprintf(`
plugins: { live: { module: live.wasm }, v0: { module: v0.wasm }, v1: { module: v1.wasm } }
pipelines:
  orders: { from: "orders.>", steps: [live, v%d], to: done.orders, commit: %s }
`, version, commit)
}

// watch runs the configuration, whose second step says which version it is.
func watched(t *testing.T, commit string) *watching {
	t.Helper()
	w := &watching{watcher: watch.New(watch.Options{Settle: 20 * time.Millisecond, Gone: 500 * time.Millisecond, Poll: 200 * time.Millisecond})}
	version := func(n int) native {
		return func(m *host.Message, r *host.Result) error {
			w.calls[n].Add(1)
			emit(r, "", string(m.Data)+" by v")
			return nil
		}
	}
	pass := func(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)); return nil }
	w.rig = &rig{t: t, sync: time.Minute, dir: t.TempDir(), native: map[string]native{"v0": version(0), "v1": version(1), "pass": pass, "pass2": pass}, log: &syncWriter{}}
	w.start()
	t.Cleanup(w.stop)
	w.write("live.wasm", "pass")
	file := filepath.Join(w.dir, "pipelines.yaml")
	w.apply(scenarioYAML(commit, 0))
	named := func(files []string) { w.watcher.Watch(append([]string{file}, files...)...) }
	named([]string{filepath.Join(w.dir, "live.wasm"), filepath.Join(w.dir, "v0.wasm"), filepath.Join(w.dir, "v1.wasm")})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		w.watcher.Run(ctx, func([]string) {
			w.watcher.Mark()
			cfg, err := config.Load(config.LoadOptions{Files: []string{file}, Named: named})
			if err == nil {
				_, err = w.m.Apply(ctx, cfg)
			}
			if err != nil {
				w.problems.Add(1)
			}
		})
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

// TestHOT_scenarios: each way in which files change, under load and on both
// ways to commit, is taken with nothing lost, repeated or handled twice.
func TestHOT_scenarios(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			w := watched(t, commit)
			file, module := filepath.Join(w.dir, "pipelines.yaml"), filepath.Join(w.dir, "live.wasm")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			put := func(path, text string) { must(os.WriteFile(path, []byte(text), 0o600)) }
			rename := func(path, text string) {
				put(path+".new", text)
				must(os.Rename(path+".new", path))
			}
			link := func(n int, text string) { // as Kubernetes does
				dir := filepath.Join(w.dir, fmt.Sprint("..", n))
				must(os.Mkdir(dir, 0o700))
				put(filepath.Join(dir, "pipelines.yaml"), text)
				must(os.Symlink(fmt.Sprint("..", n), filepath.Join(w.dir, "..tmp")))
				must(os.Rename(filepath.Join(w.dir, "..tmp"), filepath.Join(w.dir, "..data")))
			}
			stop := w.flood()
			for i, tt := range []struct {
				name string
				do   func(yaml string)
			}{
				{"in-place write", func(y string) { put(file, y) }},
				{"truncate, then write", func(y string) { put(file, ""); put(file, y) }},
				{"editor's rename-save", func(y string) {
					must(os.Rename(file, file+"~"))
					put(file, y)
					must(os.Remove(file + "~"))
				}},
				{"atomic rename", func(y string) { rename(file, y) }},
				{"delete, then make again", func(y string) { must(os.Remove(file)); put(file, y) }},
				{"config and module in one go", func(y string) { rename(module, "pass2"); rename(file, y) }},
				{"module while the config is unchanged", func(y string) {
					rename(file, y)
					rename(module, "pass")
				}},
				{"ten changes in a second", func(y string) {
					for j := range 10 {
						rename(file, scenarioYAML(commit, j%2))
					}
					rename(file, y)
				}},
				{"broken, then good", func(y string) {
					before := w.problems.Load()
					put(file, "pipelines: { orders: { form: x } }")
					w.eventually(func() error {
						if w.problems.Load() == before {
							return fmt.Errorf("the broken file was not refused")
						}
						return nil
					})
					put(file, y)
				}},
				{"link into a swapped folder", func(y string) {
					link(1, y)
					must(os.Symlink(filepath.Join("..data", "pipelines.yaml"), file+".link"))
					must(os.Rename(file+".link", file))
				}},
				{"folder swapped", func(y string) { link(2, y); must(os.RemoveAll(filepath.Join(w.dir, "..1"))) }},
			} {
				version := (i + 1) % 2
				tt.do(scenarioYAML(commit, version))
				w.eventually(func() error {
					if got := w.m.Config().Pipelines["orders"].Steps[1]; got != fmt.Sprint("v", version) {
						return fmt.Errorf("%s: %s runs", tt.name, got)
					}
					return nil
				})
				before := w.calls[version].Load()
				w.eventually(func() error {
					if w.calls[version].Load() == before {
						return fmt.Errorf("%s: no message goes through v%d", tt.name, version)
					}
					return nil
				})
			}
			n := stop()
			w.whole(n, map[string]bool{"v": true})
			if calls := w.calls[0].Load() + w.calls[1].Load(); int(calls) != n {
				t.Errorf("%d handler calls of %d messages", calls, n)
			}
		})
	}
}

// TestSoak: after many random edits what runs is what a fresh start on the last
// good file would run. MQRUN_SOAK says how many; 1000 take a minute.
func TestSoak(t *testing.T) {
	edits := 150
	if n, err := strconv.Atoi(os.Getenv("MQRUN_SOAK")); err == nil {
		edits = n
	}
	pass := func(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)+" by p"); return nil }
	r := &rig{t: t, sync: time.Minute, dir: t.TempDir(), native: map[string]native{"one": pass, "two": pass, "three": pass}, log: &syncWriter{}}
	r.start()
	t.Cleanup(r.stop)
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	random := func() string {
		var b strings.Builder
		b.WriteString("plugins: { live: { module: live.wasm }, one: { module: one.wasm, config: { n: " + pick("1", "2") + " } } }\npipelines:\n")
		fmt.Fprintf(&b, "  orders: { from: \"orders.>\", steps: [%s], to: done.orders, retry: { attempts: %s }, ack_wait: %s }\n", pick("live", "one"), pick("2", "3"), pick("30s", "30s", "30s", "40s"))
		for i := range 5 {
			if rnd.IntN(2) == 0 {
				fmt.Fprintf(&b, "  p%d: { from: in.p%d, steps: [%s], to: out.p%d, workers: %s, commit: each }\n", i, i, pick("live", "one"), i, pick("1", "2"))
			}
		}
		return b.String()
	}
	// What the last good reload read: the file and the module.
	r.write("live.wasm", "two")
	text := random()
	module := "two"
	goodText, goodModule := text, module
	if _, err := r.m.Apply(r.ctx(), r.load(text)); err != nil {
		t.Fatal(err)
	}
	stop := r.flood()
	refused := 0
	for range edits {
		switch rnd.IntN(10) {
		case 0, 1, 2, 3:
			text = random()
		case 4: // broken
			text = strings.Replace(text, pick("from", "steps", "live", "retry"), "nope", 1)
		case 5: // half of it
			text = text[:rnd.IntN(len(text))]
		case 6: // back
			text = goodText
		case 7:
			module = pick("two", "three")
		case 8:
			module = "no such module"
		case 9:
			text, module = goodText, goodModule
		}
		r.write("live.wasm", module)
		cfg, err := r.tryLoad(text)
		if err == nil {
			_, err = r.m.Apply(r.ctx(), cfg)
		}
		if err != nil {
			refused++
			continue
		}
		goodText, goodModule = text, module
	}
	n := stop()
	if refused == 0 || refused == edits {
		t.Errorf("%d of %d edits were refused", refused, edits)
	}
	// It may have ended on a file without the pipeline that is counted.
	r.write("live.wasm", goodModule)
	fresh := r.load(goodText)
	ignore := cmp.Options{cmpopts.IgnoreUnexported(config.Config{}, config.Plugin{})}
	if diff := cmp.Diff(fresh, r.m.Config(), ignore); diff != "" {
		t.Errorf("what runs is not the last good file (-fresh +running):\n%s", diff)
	}
	if got := r.m.modules.plugins["live"].digest; got != nativeDigest(goodModule) {
		t.Errorf("the module that runs is %s, want %s", got, nativeDigest(goodModule))
	}
	if len(r.m.pipelines) != len(fresh.Pipelines) {
		t.Errorf("%d pipelines run, want %d", len(r.m.pipelines), len(fresh.Pipelines))
	}
	if fresh.Pipelines["orders"] == nil {
		r.apply("plugins: { one: { module: one.wasm } }\npipelines: { orders: { from: \"orders.>\", steps: [one], to: done.orders } }\n")
	}
	r.whole(n, map[string]bool{"p": true})
}
