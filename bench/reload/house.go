package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/watch"
)

// window is a stretch of time.
type window struct{ begin, end time.Time }

// house is mqrun without its command line.
type house struct {
	dir      string
	yaml     string
	files    *watch.Watcher
	cfg      *config.Config
	q        *mq.EmbeddedNATS
	rt       *host.Runtime
	m        *pipeline.Manager
	echo     []byte
	cold     []byte
	coldSize int
}

func inFolder(f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "mqrun-reload")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return f(dir)
}

func openHouse(ctx context.Context, dir string) (*house, error) {
	h := &house{dir: dir, files: watch.New(watch.Options{})}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store := filepath.Join(dir, ".mqrun")
	var err error
	if h.echo, err = os.ReadFile(filepath.Join("bench", "scale", "testdata", "echo.wasm")); err != nil {
		return nil, fmt.Errorf("%w; run it from the top of the repository", err)
	}
	if h.q, err = mq.Open(ctx, mq.Options{StoreDir: store, MaxBytes: 20 << 30, Bare: true, Logger: log}); err != nil {
		return nil, err
	}
	if h.rt, err = host.New(ctx, host.Options{CacheDir: filepath.Join(store, "cache"), Logger: log}); err == nil {
		h.m, err = pipeline.Open(ctx, pipeline.Options{MQ: h.q, Host: h.rt, Logger: log, StoreDir: store})
	}
	if err != nil {
		return nil, h.close(err)
	}
	return h, h.write("echo.wasm", version(h.echo, "first"))
}

func (h *house) close(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if h.m != nil {
		err = errors.Join(err, h.m.Drain(ctx))
	}
	if h.rt != nil {
		err = errors.Join(err, h.rt.Close(ctx))
	}
	return errors.Join(err, h.q.Close())
}

// modules puts the large one next door, too.
func (h *house) modules(guest string) (err error) {
	if h.cold, err = os.ReadFile(guest); err != nil {
		return fmt.Errorf("%w; make plugins builds it", err)
	}
	h.coldSize = len(h.cold)
	return h.write("cold.wasm", version(h.cold, "first"))
}

// version is the module with a custom section of that text: another content
// that does the same.
func version(wasm []byte, text string) []byte {
	body := append([]byte{4}, "mqrv"...)
	body = append(body, text...)
	return append(append(bytes.Clone(wasm), 0, byte(len(body))), body...)
}

func (h *house) write(name string, data []byte) error {
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// swap puts another version of a module there and takes it.
func (h *house) swap(ctx context.Context, name, text string) (window, error) {
	wasm := h.echo
	if name == "cold.wasm" {
		wasm = h.cold
	}
	if err := h.write(name, version(wasm, text)); err != nil {
		return window{}, err
	}
	w := window{begin: time.Now()}
	plan, err := h.apply(ctx)
	w.end = time.Now()
	if err == nil && !plan.Changed() {
		err = fmt.Errorf("another %s changes nothing", name)
	}
	return w, err
}

func (h *house) apply(ctx context.Context) (pipeline.Plan, error) {
	if h.yaml != "" {
		if err := h.write("pipelines.yaml", []byte(h.yaml)); err != nil {
			return pipeline.Plan{}, err
		}
		h.yaml = ""
	}
	file := filepath.Join(h.dir, "pipelines.yaml")
	if h.files.Mark() || h.cfg == nil { // as mqrun does
		var err error
		h.cfg, err = config.Load(config.LoadOptions{Files: []string{file}, Named: func(files []string) { h.files.Watch(append(files, file)...) }})
		if err != nil {
			return pipeline.Plan{}, err
		}
	}
	return h.m.Apply(ctx, h.cfg)
}

func loadYAML(commit string) string {
	return `
web: { listen: "" }
plugins:
  echo: { module: echo.wasm }
  cold: { module: cold.wasm }
pipelines:
  load: { from: ingest.load, steps: [echo], to: load.out, commit: ` + commit + ` }
  cold: { from: ingest.cold, steps: [cold], to: cold.out }
`
}

// manyPipelines edits one of n pipelines, and then nothing.
func manyPipelines(ctx context.Context, dir string, n int) (touched int, noop time.Duration, err error) {
	h, err := openHouse(ctx, dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = h.close(err) }()
	var b strings.Builder
	b.WriteString("web: { listen: \"\" }\nplugins:\n")
	for i := range n {
		fmt.Fprintf(&b, "  p%d: { module: p%d.wasm }\n", i, i)
		if err := h.write(fmt.Sprintf("p%d.wasm", i), version(h.echo, strconv.Itoa(i))); err != nil {
			return 0, 0, err
		}
	}
	b.WriteString("pipelines:\n")
	for i := range n {
		fmt.Fprintf(&b, "  p%d: { from: ingest.p%d, steps: [p%d], to: out.p%d }\n", i, i, i, i)
	}
	h.yaml = b.String()
	if _, err = h.apply(ctx); err != nil {
		return 0, 0, err
	}
	h.yaml = strings.Replace(b.String(), "steps: [p7], to: out.p7 ", "steps: [p7], to: out.p7, retry: { attempts: 3 } ", 1)
	plan, err := h.apply(ctx)
	if err != nil {
		return 0, 0, err
	}
	touched = len(plan.Start) + len(plan.Stop) + len(plan.Swap) + len(plan.Restart)
	if err := pause(ctx, 3*time.Second); err != nil { // the files are old enough to be told by their times
		return 0, 0, err
	}
	var all []time.Duration
	for range 22 {
		begin := time.Now()
		if plan, err = h.apply(ctx); err != nil || plan.Changed() {
			return 0, 0, fmt.Errorf("a file without a change: %s, %w", plan, err)
		}
		all = append(all, time.Since(begin))
	}
	noop = p99(all[2:])
	fmt.Printf("%d pipelines: editing one touches %d; no change takes %v at most of 20\n", n, touched, noop)
	return touched, noop, nil
}

// resources are what a process holds.
type resources struct {
	goroutines, files int
	memory            float64 // resident bytes
}

func look() (r resources, err error) {
	runtime.GC()
	runtime.GC()
	r.goroutines = runtime.NumGoroutine()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return r, err
	}
	r.files = len(fds)
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		return r, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return r, err
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	r.memory = float64(pages * os.Getpagesize())
	return r, err
}

// flat swaps n times and looks at what the process holds after the first tenth
// and at the end.
func flat(ctx context.Context, dir string, n int) (before, after resources, err error) {
	h, err := openHouse(ctx, dir)
	if err != nil {
		return before, after, err
	}
	defer func() { err = h.close(err) }()
	h.yaml = "web: { listen: \"\" }\nplugins: { echo: { module: echo.wasm } }\npipelines: { echo: { from: ingest.x, steps: [echo], to: x.out } }\n"
	for i := range n {
		if _, err := h.swap(ctx, "echo.wasm", []string{"b", "a"}[i%2]); err != nil {
			return before, after, err
		}
		if i == n/10 {
			if before, err = settled(ctx); err != nil {
				return before, after, err
			}
		}
	}
	after, err = settled(ctx)
	fmt.Printf("%d swaps: %d goroutines, %d files, %.1f MB; before %d, %d, %.1f MB\n", n,
		after.goroutines, after.files, after.memory/1e6, before.goroutines, before.files, before.memory/1e6)
	return before, after, err
}

// settled looks once the old plugins are closed.
func settled(ctx context.Context) (resources, error) {
	if err := pause(ctx, time.Second); err != nil {
		return resources{}, err
	}
	return look()
}
