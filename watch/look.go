package watch

import (
	"crypto/sha256"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sight is what a look finds at a path. The zero value is nothing.
type sight struct {
	path  string
	id    ID
	list  string // of a folder: its members
	names []string
}

func (s sight) same(id ID, list string) bool { return s.id == id && s.list == list }

// void: nothing is there, or nothing yet.
func (s sight) void() bool { return s.names == nil && s.id.size == 0 }

// entry is what is known of one path.
type entry struct {
	id    ID // of what was read last
	list  string
	names []string // of a folder
	sum   [sha256.Size]byte
	seen  time.Time // when id was first there
	sure  bool      // a later write cannot leave id as it is

	pending bool
	next    sight // is there since then
	since   time.Time
	began   time.Time // when it was last as known
}

// read takes what is there now for read.
func (e *entry) read(s sight, now time.Time) {
	if e.sure && s.same(e.id, e.list) {
		e.pending = false
		return
	}
	sum, ok := s.sum()
	if !ok {
		s = sight{path: s.path}
		sum, _ = s.sum()
	}
	e.take(s, sum, now)
}

func (e *entry) take(s sight, sum [sha256.Size]byte, now time.Time) {
	if !s.same(e.id, e.list) || e.seen.IsZero() {
		e.seen, e.sure = now, false
	} else if now.Sub(e.seen) >= coarse {
		e.sure = true
	}
	e.id, e.list, e.names, e.sum, e.pending = s.id, s.list, s.names, sum, false
}

// coarse is how far apart two writes must be for a file's times to tell them
// apart, on any file system.
const coarse = 2 * time.Second

// stat is a look at one path.
func (w *Watcher) stat(path string) sight {
	if names, folder := w.members(path); folder {
		return sight{path: path, list: "/" + strings.Join(names, "/"), names: names}
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return sight{path: path}
	}
	return sight{path: path, id: IDOf(info)}
}

// sum is a hash of the content, and false when it is not the one that was seen.
func (s sight) sum() (sum [sha256.Size]byte, ok bool) {
	if s.id == (ID{}) {
		return sha256.Sum256([]byte(s.list)), true
	}
	// Without O_NONBLOCK a FIFO that takes the file's place would hang us.
	f, err := os.OpenFile(s.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return sum, false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, false
	}
	info, err := f.Stat()
	if err != nil || IDOf(info) != s.id {
		return sum, false
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}

// look returns the paths whose content has changed and is quiet, and when to
// look again. As long as one is not quiet none is told: an edit of two files
// is one change.
func (w *Watcher) look(now time.Time) (changed []string, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = w.o.Poll
	var ripe []*entry
	restless := false
	for path := range w.paths() {
		e := w.entries[path]
		if e == nil {
			e = &entry{}
			e.read(sight{path: path}, now)
			w.entries[path] = e
		}
		left := w.age(e, w.stat(path), now)
		switch {
		case !e.pending:
		case left <= 0:
			ripe = append(ripe, e)
		default:
			wait = min(wait, left)
			restless = restless || now.Sub(e.began) < w.o.Patience
		}
	}
	if restless {
		return nil, wait
	}
	for _, e := range ripe {
		sum, ok := e.next.sum()
		switch {
		case !ok:
			e.since, wait = now, min(wait, w.o.Settle)
		case sum == e.sum:
			e.take(e.next, sum, now)
		default:
			e.take(e.next, sum, now)
			changed = append(changed, e.next.path)
			w.told = true
		}
	}
	w.forget()
	slices.Sort(changed)
	return changed, wait
}

// age compares what is there with what is known. Of a pending entry it returns
// how long it has to stay as it is.
func (w *Watcher) age(e *entry, s sight, now time.Time) time.Duration {
	if s.same(e.id, e.list) {
		if e.pending && s.same(e.next.id, e.next.list) {
			return w.o.Settle - now.Sub(e.since)
		}
		e.pending = false
		if e.sure || now.Sub(e.seen) < coarse {
			return 0
		}
		if sum, ok := s.sum(); ok && sum == e.sum {
			e.sure = true
			return 0
		}
		e.pending, e.next, e.since, e.began = true, s, now, now
		return w.o.Settle
	}
	if !e.pending {
		e.pending, e.began, e.next, e.since = true, now, s, now
	} else if !s.same(e.next.id, e.next.list) {
		e.next, e.since = s, now
	}
	quiet := w.o.Settle
	switch {
	case s.void() || vanished(e.names, s.names):
		quiet = w.o.Gone
	case s.names == nil && now.Sub(e.since) >= quiet && beingWritten(s.path):
		quiet = w.o.Held
	}
	return quiet - now.Sub(e.since)
}

// vanished reports whether a folder has lost a member.
func vanished(before, now []string) bool {
	return slices.ContainsFunc(before, func(name string) bool { return !slices.Contains(now, name) })
}
