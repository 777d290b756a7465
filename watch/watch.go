// Package watch tells when the content of files has changed.
//
// It watches folders rather than files, because editors and Kubernetes replace
// files instead of writing them. Events are only hints: what counts is the
// content, once it has been quiet for a moment, and a look every second finds
// what no event told. A file that is missing or empty is most likely being
// replaced; it counts as changed only when it stays so.
//
// # Caveats
//
// A file that is written in place can be seen half written when its writer
// pauses for longer than the quiet time with the file closed, or for longer
// than some seconds with the file open. Its next change is told again.
package watch

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options say how long is quiet enough. The zero value is what mqrun uses.
type Options struct {
	Settle   time.Duration // quiet of a file that was changed; default 150 ms
	Gone     time.Duration // of one that is missing or empty; default 1 s
	Held     time.Duration // of one that somebody still has open for writing; default 3 s
	Patience time.Duration // for files that never get quiet, before the others are told; default 10 s
	Poll     time.Duration // between two looks without an event; default 1 s
	// NoEvents only looks.
	NoEvents bool
	// Member tells which files of a watched folder count; nil: all.
	Member func(name string) bool
	Logger *slog.Logger // default slog.Default
}

// hurry is the least time between two looks, however many events come.
const hurry = 20 * time.Millisecond

// Watcher knows the content of a set of files and tells when one differs. Its
// methods may be called concurrently, Run once.
type Watcher struct {
	o    Options
	news chan struct{} // the set has changed

	mu      sync.Mutex
	roots   []string
	entries map[string]*entry
	mode    string
	told    bool // a change, since the last Mark
}

// New makes a watcher of nothing.
func New(o Options) *Watcher {
	for _, d := range []struct {
		of     *time.Duration
		preset time.Duration
	}{
		{&o.Settle, 150 * time.Millisecond}, {&o.Gone, time.Second}, {&o.Held, 3 * time.Second},
		{&o.Patience, 10 * time.Second}, {&o.Poll, time.Second},
	} {
		if *d.of == 0 {
			*d.of = d.preset
		}
	}
	if o.Member == nil {
		o.Member = func(string) bool { return true }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Watcher{o: o, news: make(chan struct{}, 1), entries: map[string]*entry{}, mode: "off"}
}

// Watch replaces the set of files and folders. Of those that were watched what
// is known stays; what the new ones hold now counts as read. A folder stands
// for its members, without those below its own folders.
func (w *Watcher) Watch(paths ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roots = w.roots[:0]
	for _, p := range paths {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		w.roots = append(w.roots, p)
	}
	slices.Sort(w.roots)
	w.roots = slices.Compact(w.roots)
	now := time.Now()
	for path := range w.paths() {
		if w.entries[path] == nil {
			w.entries[path] = &entry{}
			w.entries[path].read(w.stat(path), now)
		}
	}
	w.forget()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Mark lets everything that is there now count as read: whoever reads the
// files after it is told of what changes from then on, and of nothing else. It
// reports whether anything differs from the last time.
func (w *Watcher) Mark() (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for path := range w.paths() {
		if w.entries[path] == nil {
			w.entries[path] = &entry{}
		}
		e := w.entries[path]
		before := e.sum
		e.read(w.stat(path), now)
		changed = changed || e.sum != before
	}
	w.forget()
	changed, w.told = changed || w.told, false
	return changed
}

// Mode says how changes are found: "events", or "polling" and why.
func (w *Watcher) Mode() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode
}

// paths is what the roots stand for now, and what a folder held before: a
// member that is gone is still looked after until that is told. w.mu is held.
func (w *Watcher) paths() map[string]bool {
	all := map[string]bool{}
	for _, root := range w.roots {
		all[root] = true
		names, folder := w.members(root)
		if e := w.entries[root]; e != nil && (folder || e.names != nil) {
			names = append(names, e.names...)
		}
		for _, name := range names {
			all[filepath.Join(root, name)] = true
		}
	}
	return all
}

// forget drops what is watched no longer. w.mu is held.
func (w *Watcher) forget() {
	all := w.paths()
	maps.DeleteFunc(w.entries, func(path string, _ *entry) bool { return !all[path] })
}

// members lists the files of a folder that count, in order.
func (w *Watcher) members(path string) (names []string, folder bool) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return nil, false
	}
	all, err := os.ReadDir(path)
	if err != nil {
		return nil, true
	}
	names = []string{}
	for _, e := range all {
		if !w.o.Member(e.Name()) {
			continue
		}
		if info, err := os.Stat(filepath.Join(path, e.Name())); err == nil && !info.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, true
}

// Run calls changed with the paths whose content has changed, sorted, until ctx
// is done. While changed runs nothing else is told; what happened meanwhile
// comes in one go afterwards.
func (w *Watcher) Run(ctx context.Context, changed func(paths []string)) {
	h := w.openHints()
	defer h.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.events():
			// Rather a moment later than a look for each of a thousand events.
			timer.Reset(max(0, hurry-time.Since(last)))
			continue
		case _, ok := <-h.errors():
			if !ok {
				return
			}
			continue // the look that is due finds what was lost
		case <-w.news:
		case <-timer.C:
		}
		last = time.Now()
		paths, wait := w.look(last)
		if h.follow() {
			wait = min(wait, hurry) // what changed before the events began
		}
		if len(paths) > 0 {
			changed(paths)
			wait = 0
		}
		timer.Reset(wait)
	}
}
