package watch

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// hints are the events of the folders that matter. Without any, looking finds
// everything, only later.
type hints struct {
	w       *Watcher
	fs      *fsnotify.Watcher // nil: no events
	folders map[string]ID
	told    map[string]bool // said once
}

func (w *Watcher) openHints() *hints {
	h := &hints{w: w, folders: map[string]ID{}, told: map[string]bool{}}
	if w.o.NoEvents {
		h.poll("it was asked for")
		return h
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		h.poll(err.Error())
		w.o.Logger.Warn("no file events: changes are found by looking", "every", w.o.Poll, "error", err)
		return h
	}
	h.fs = fs
	return h
}

func (h *hints) poll(why string) { h.w.setMode("polling: " + why) }

func (w *Watcher) setMode(mode string) {
	w.mu.Lock()
	w.mode = mode
	w.mu.Unlock()
}

func (h *hints) close() {
	if h.fs != nil {
		_ = h.fs.Close() // it only reads
	}
	h.w.setMode("off")
}

func (h *hints) events() <-chan fsnotify.Event {
	if h.fs == nil {
		return nil
	}
	return h.fs.Events
}

func (h *hints) errors() <-chan error {
	if h.fs == nil {
		return nil
	}
	return h.fs.Errors
}

// follow asks for the events of the folders that matter now, and reports
// whether there are new ones.
func (h *hints) follow() (more bool) {
	if h.fs == nil {
		return false
	}
	now := map[string]ID{}
	for _, dir := range h.w.folders() {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			now[dir] = IDOf(info).place()
		}
	}
	for dir, id := range h.folders {
		if now[dir] != id { // watched no longer, or another one has its name
			_ = h.fs.Remove(dir)
			delete(h.folders, dir)
		}
	}
	var failed string
	for _, dir := range slices.Sorted(maps.Keys(now)) {
		if _, have := h.folders[dir]; have {
			continue
		}
		if err := h.fs.Add(dir); err != nil {
			failed = dir + ": " + err.Error()
			h.say(dir, "no events of this folder: changes in it are found by looking", "error", err)
			continue
		}
		h.folders[dir], more = now[dir], true
		if kind := remote(dir); kind != "" {
			failed = dir + " is on a network file system (" + kind + ")"
			h.say(dir, "this folder is on a network file system, which tells no events of others: changes in it are found by looking", "kind", kind)
		}
	}
	switch {
	case failed != "":
		h.poll(failed)
	case more:
		h.w.setMode("events")
	}
	return more
}

func (h *hints) say(dir, text string, more ...any) {
	if !h.told[dir] {
		h.told[dir] = true
		h.w.o.Logger.Warn(text, append([]any{"folder", dir, "every", h.w.o.Poll}, more...)...)
	}
}

// folders are those whose events tell of changes at the paths: their own, and
// that of each link on the way to what they stand for.
func (w *Watcher) folders() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := finder{all: map[string]bool{}, real: map[string]string{}}
	for path, e := range w.entries {
		end := f.resolve(path, 0)
		f.all[filepath.Dir(end)] = true
		if e.names != nil {
			f.all[end] = true
		}
	}
	return slices.Sorted(maps.Keys(f.all))
}

// finder resolves paths and collects the folder of every link that it meets.
type finder struct {
	all  map[string]bool
	real map[string]string
}

func (f *finder) resolve(path string, depth int) string {
	dir := filepath.Dir(path)
	if real, ok := f.real[path]; ok || path == dir || depth > 255 {
		if !ok {
			real = path
		}
		return real
	}
	at := filepath.Join(f.resolve(dir, depth+1), filepath.Base(path))
	if target, err := os.Readlink(at); err == nil {
		f.all[filepath.Dir(at)] = true
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(at), target)
		}
		at = f.resolve(target, depth+1)
	}
	f.real[path] = at
	return at
}
