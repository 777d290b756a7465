package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/web"
)

// reloader owns the running configuration: whatever asks for a reload, one
// goroutine loads and applies it.
type reloader struct {
	load     func() (*config.Config, error)
	apply    func(context.Context, *config.Config) (pipeline.Plan, error)
	files    *watched
	log      *slog.Logger
	read     *config.Config // nil: not read, or refused
	requests chan request
	ended    chan struct{}

	mu   sync.Mutex
	last web.Reload
}

type request struct {
	by     string
	answer chan<- reloaded
}

type reloaded struct {
	plan pipeline.Plan
	err  error
}

// A reload that failed for another reason than its content is tried again.
const (
	againFirst = time.Second
	againMost  = time.Minute
)

func newReloader(load func() (*config.Config, error), apply func(context.Context, *config.Config) (pipeline.Plan, error), files *watched, log *slog.Logger) *reloader {
	return &reloader{load: load, apply: apply, files: files, log: log, requests: make(chan request), ended: make(chan struct{})}
}

// start applies the first configuration.
func (r *reloader) start(ctx context.Context, cfg *config.Config) error {
	plan, err := r.apply(ctx, cfg)
	if ctx.Err() != nil { // plugins that were not loaded for it look like bad ones
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		return invalid(err)
	}
	if err != nil {
		return err
	}
	plan.Restarting = "" // this is the start
	r.applied("start", cfg, plan)
	return nil
}

// loop reloads until ctx is done. Signals that come during a reload ask for
// one more.
func (r *reloader) loop(ctx context.Context, hup <-chan os.Signal) {
	defer close(r.ended)
	again := time.NewTimer(0)
	again.Stop()
	wait := againFirst
	once := func(by string) (pipeline.Plan, error) {
		plan, err := r.once(ctx, by)
		again.Stop()
		if _, refused := errors.AsType[config.Problems](err); err == nil || refused {
			wait = againFirst
			return plan, err
		}
		again.Reset(wait) // the server's doing
		wait = min(2*wait, againMost)
		return plan, err
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			_, _ = once("signal") // logged
		case <-again.C:
			_, _ = once("retry")
		case q := <-r.requests:
			plan, err := once(q.by)
			q.answer <- reloaded{plan, err}
		}
	}
}

// Reload asks for a reload and waits for its end. When ctx is done first the
// reload goes on.
func (r *reloader) Reload(ctx context.Context) (pipeline.Plan, error) { return r.ask(ctx, "http") }

func (r *reloader) ask(ctx context.Context, by string) (pipeline.Plan, error) {
	answer := make(chan reloaded, 1)
	select {
	case r.requests <- request{by, answer}:
	case <-r.ended:
		return pipeline.Plan{}, pipeline.ErrClosed
	case <-ctx.Done():
		return pipeline.Plan{}, ctx.Err()
	}
	select {
	case a := <-answer:
		return a.plan, a.err
	case <-ctx.Done():
		return pipeline.Plan{}, ctx.Err()
	}
}

// Last is how the last reload ended; the start counts as one.
func (r *reloader) Last() web.Reload {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	last.Watching = r.files.mode()
	return last
}

// once loads and applies. An error is logged here because nobody may wait for it.
func (r *reloader) once(ctx context.Context, by string) (pipeline.Plan, error) {
	begin := time.Now()
	cfg := r.read
	if r.files.mark() || cfg == nil { // before the first byte is read
		r.read = nil
		var err error
		if cfg, err = r.load(); err != nil {
			return pipeline.Plan{}, r.refused(by, problems(err))
		}
		r.read = cfg
	}
	plan, err := r.apply(ctx, cfg)
	if plan.Generation == 0 && ctx.Err() != nil { // stopped in the middle
		return plan, pipeline.ErrClosed
	}
	if plan.Generation == 0 {
		return plan, r.refused(by, err)
	}
	r.applied(by, cfg, plan)
	if err != nil {
		r.mu.Lock()
		r.last.Problems = strings.Split(err.Error(), "\n")
		r.mu.Unlock()
		r.log.Error("reloaded in part", "by", by, "error", err)
		return plan, err
	}
	for _, w := range cfg.Warnings {
		r.log.Warn("configuration", "warning", w.String())
	}
	r.log.Info("reloaded", "by", by, "generation", plan.Generation, "plan", plan.String(), "config", contentHash(cfg), "took", time.Since(begin).Round(time.Millisecond))
	return plan, nil
}

func (r *reloader) applied(by string, cfg *config.Config, plan pipeline.Plan) {
	r.files.taken()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = web.Reload{Generation: plan.Generation, Config: contentHash(cfg), Time: time.Now(), By: by, Plan: plan.String(), Refused: r.last.Refused}
}

// problems is an error of loading; a file that cannot be read is one too.
func problems(err error) config.Problems {
	if ps, ok := errors.AsType[config.Problems](err); ok {
		return ps
	}
	file := "config"
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		file = pe.Path
	}
	return config.Problems{{File: file, Message: err.Error()}}
}

// refused notes that nothing changed and why. The log says it once: who saves
// a broken file again and again, or asks again, does not see more of it.
func (r *reloader) refused(by string, err error) error {
	lines := strings.Split(err.Error(), "\n")
	r.mu.Lock()
	said := slices.Equal(lines, r.last.Problems)
	r.last.Time, r.last.By, r.last.Plan, r.last.Problems = time.Now(), by, "", lines
	r.last.Refused++
	r.mu.Unlock()
	level := slog.LevelError
	if said {
		level = slog.LevelDebug
	}
	for _, line := range lines {
		r.log.Log(context.Background(), level, "reload refused, the running configuration stays", "by", by, "problem", line)
	}
	return err
}

// concluded notes that a module was rolled back: what is in the files is not
// what runs, as after a reload that was refused.
func (r *reloader) concluded(ro pipeline.Rollout) {
	if ro.State != pipeline.RolloutRolledBack {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Time, r.last.By, r.last.Plan, r.last.Problems = time.Now(), "rollout", "", []string{ro.String()}
	r.last.Refused++
}

// contentHash tells whether two processes run the same pipelines and plugin
// settings; the modules' bytes are not in it.
func contentHash(cfg *config.Config) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(cfg.Pipelines)) {
		_, _ = io.WriteString(h, cfg.Pipelines[name].Hash())
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Plugins)) {
		_, _ = io.WriteString(h, cfg.Plugins[name].Hash())
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
