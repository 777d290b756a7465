package main

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/watch"
)

// The values of --watch.
const (
	watchOn   = "on"
	watchPoll = "poll"
	watchOff  = "off"
)

// watched are the files that a configuration is made of: those that it was
// asked for with -c, and those that the running and the last read one name.
type watched struct {
	*watch.Watcher // nil: off
	roots          []string

	mu      sync.Mutex
	running []string
	last    []string
}

func (c *cli) newWatched() *watched {
	f := &watched{roots: c.configs}
	if c.watch == watchOff {
		return f
	}
	f.Watcher = watch.New(watch.Options{NoEvents: c.watch == watchPoll, Member: config.Member, Logger: c.logger()})
	f.Watch(f.roots...)
	return f
}

// mark lets what is there now count as read, and reports whether it may differ
// from the last time.
func (f *watched) mark() bool { return f.Watcher == nil || f.Mark() }

// named adds the files that a configuration names which is about to be checked.
func (f *watched) named(files []string) {
	f.mu.Lock()
	f.last = files
	all := slices.Concat(f.roots, f.running, f.last)
	f.mu.Unlock()
	if f.Watcher != nil {
		f.Watch(all...)
	}
}

// taken drops what only the configuration before named.
func (f *watched) taken() {
	f.mu.Lock()
	f.running = f.last
	last := f.last
	f.mu.Unlock()
	f.named(last)
}

func (f *watched) mode() string {
	if f.Watcher == nil {
		return watchOff
	}
	return f.Mode()
}

// run asks for a reload whenever a file has changed, until ctx is done.
func (f *watched) run(ctx context.Context, r *reloader) {
	if f.Watcher == nil {
		return
	}
	f.Run(ctx, func(paths []string) {
		r.log.Info("changed on disk", "files", strings.Join(paths, ", "))
		_, _ = r.ask(ctx, "watch") // logged
	})
}
