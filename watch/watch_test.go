package watch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mounted is a folder as Kubernetes mounts a ConfigMap; swap gives it another
// version.
type mounted struct {
	t   *testing.T
	dir string
	n   int
}

func (m *mounted) swap(files map[string]string) {
	m.t.Helper()
	m.n++
	version := "..v" + string(rune('0'+m.n))
	must(m.t, os.Mkdir(filepath.Join(m.dir, version), 0o700))
	for name, text := range files {
		put(m.t, filepath.Join(m.dir, version, name), text)
		if m.n == 1 {
			must(m.t, os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)))
		}
	}
	must(m.t, os.Symlink(version, filepath.Join(m.dir, "..tmp")))
	must(m.t, os.Rename(filepath.Join(m.dir, "..tmp"), filepath.Join(m.dir, "..data")))
	if m.n > 1 {
		must(m.t, os.RemoveAll(filepath.Join(m.dir, "..v"+string(rune('0'+m.n-1)))))
	}
}

// TestChanges: what somebody does to files, with its pauses, is told as so many
// changes. The clock is a false one, and there are no events.
func TestChanges(t *testing.T) {
	const a, b = "a.yaml", "b.wasm"
	pause := time.Sleep // on the false clock
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, dir string)
		want []string // the changes in order, each a list of files
	}{
		{"write", func(t *testing.T, dir string) { put(t, dir+"/"+a, "2") }, []string{a}},
		{"same content", func(t *testing.T, dir string) { put(t, dir+"/"+a, "1") }, nil},
		{"touch", func(t *testing.T, dir string) {
			must(t, os.Chtimes(dir+"/"+a, time.Now(), time.Now()))
		}, nil},
		{"there and back", func(t *testing.T, dir string) {
			put(t, dir+"/"+a, "2")
			pause(100 * time.Millisecond)
			put(t, dir+"/"+a, "1")
		}, nil},
		{"truncate, then write", func(t *testing.T, dir string) {
			put(t, dir+"/"+a, "")
			pause(800 * time.Millisecond)
			put(t, dir+"/"+a, "2")
		}, []string{a}},
		{"stays empty", func(t *testing.T, dir string) {
			put(t, dir+"/"+a, "")
			pause(5 * time.Second)
			put(t, dir+"/"+a, "2")
		}, []string{a, a}},
		{"rename-save", func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/"+a, dir+"/"+a+"~"))
			pause(50 * time.Millisecond)
			put(t, dir+"/"+a, "2")
			must(t, os.Remove(dir+"/"+a+"~"))
		}, []string{a}},
		{"atomic rename", func(t *testing.T, dir string) {
			put(t, dir+"/new", "2")
			must(t, os.Rename(dir+"/new", dir+"/"+a))
		}, []string{a}},
		{"delete, then make again", func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/"+a))
			pause(800 * time.Millisecond)
			put(t, dir+"/"+a, "2")
		}, []string{a}},
		{"delete, make again as it was", func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/"+a))
			pause(800 * time.Millisecond)
			put(t, dir+"/"+a, "1")
		}, nil},
		{"delete for good", func(t *testing.T, dir string) { must(t, os.Remove(dir+"/"+a)) }, []string{a}},
		{"two files in one go", func(t *testing.T, dir string) {
			put(t, dir+"/"+a, "2")
			pause(100 * time.Millisecond)
			put(t, dir+"/"+b, "2")
		}, []string{a + " " + b}},
		{"ten changes in a second", func(t *testing.T, dir string) {
			for i := range 10 {
				put(t, dir+"/"+a, strings.Repeat("x", i+2))
				pause(100 * time.Millisecond)
			}
		}, []string{a}},
		{"slow copy", func(t *testing.T, dir string) {
			f, err := os.Create(dir + "/" + b)
			must(t, err)
			for range 5 {
				_, err := f.WriteString("a piece that could be the whole")
				must(t, err)
				pause(2 * time.Second)
			}
			must(t, f.Close())
		}, []string{b}},
		{"a file that never rests holds up nobody for long", func(t *testing.T, dir string) {
			put(t, dir+"/"+a, "2")
			for i := range 150 {
				put(t, dir+"/"+b, strings.Repeat("x", i+2))
				pause(100 * time.Millisecond)
			}
		}, []string{a, b}},
		{"other files", func(t *testing.T, dir string) { put(t, dir+"/notes", "2") }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "slow copy" && !leases(t) {
				t.Skip("no leases on this file system")
			}
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				put(t, dir+"/"+a, "1")
				put(t, dir+"/"+b, "1")
				w := New(Options{NoEvents: true, Poll: 50 * time.Millisecond})
				w.Watch(dir+"/"+a, dir+"/"+b)
				got := collect(t, w, func() { tt.do(t, dir) })
				if !slices.Equal(got, tt.want) {
					t.Errorf("told %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// leases reports whether an open writer can be seen here.
func leases(t *testing.T) bool {
	t.Helper()
	f, err := os.Create(t.TempDir() + "/f")
	must(t, err)
	defer f.Close()
	return beingWritten(f.Name())
}

// collect runs w while do runs, and a while longer, in a bubble.
func collect(t *testing.T, w *Watcher, do func()) (got []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(paths []string) {
			for i := range paths {
				paths[i] = filepath.Base(paths[i])
			}
			slices.Sort(paths)
			got = append(got, strings.Join(paths, " "))
		})
	}()
	time.Sleep(3 * time.Second)
	do()
	time.Sleep(20 * time.Second)
	cancel()
	<-done
	return got
}

// TestHOT07_Folder: members come and go, and what does not count does not.
func TestHOT07_Folder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		dir := filepath.Join(root, "conf")
		must(t, os.Mkdir(dir, 0o700))
		w := New(Options{NoEvents: true, Member: func(name string) bool { return filepath.Ext(name) == ".yaml" }})
		w.Watch(dir)
		got := collect(t, w, func() {
			put(t, dir+"/notes.txt", "1")
			time.Sleep(3 * time.Second)
			put(t, dir+"/a.yaml", "1")
			time.Sleep(3 * time.Second)
			put(t, dir+"/a.yaml", "2")
			time.Sleep(3 * time.Second)
			must(t, os.Rename(dir+"/a.yaml", dir+"/a.yaml~")) // and back before it counts
			time.Sleep(500 * time.Millisecond)
			must(t, os.Rename(dir+"/a.yaml~", dir+"/a.yaml"))
			time.Sleep(3 * time.Second)
			must(t, os.Remove(dir+"/a.yaml"))
		})
		if want := []string{"a.yaml conf", "a.yaml", "a.yaml conf"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// TestMark: what was there when it was marked is not told, what comes after is.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a", "1")
	w := New(Options{})
	w.Watch(dir+"/a", dir+"/b")
	now := time.Now()
	if w.Mark() {
		t.Error("a change without any")
	}
	put(t, dir+"/a", "2")
	if !w.Mark() || w.Mark() {
		t.Error("a change is to be told once")
	}
	for range 3 {
		now = now.Add(time.Minute)
		if got, _ := w.look(now); got != nil {
			t.Errorf("told %q though it was marked", got)
		}
	}
	put(t, dir+"/b", "1")
	w.look(now.Add(time.Minute))
	if got, _ := w.look(now.Add(2 * time.Minute)); !slices.Equal(got, []string{dir + "/b"}) {
		t.Errorf("told %q, want the file that was made", got)
	}
	if !w.Mark() || w.Mark() {
		t.Error("what a look has told differs from the last mark, too")
	}
}

// TestSameTimes: a write that leaves size and times as they were, because the
// file system's clock is coarse, is found all the same.
func TestSameTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	put(t, path, "1")
	w := New(Options{})
	w.Watch(path)
	now := time.Now()
	e := w.entries[path]
	put(t, path, "2")
	e.id = w.stat(path).id // as if nothing had moved on
	if got, _ := w.look(now.Add(time.Second)); got != nil {
		t.Errorf("told %q before it could be known", got)
	}
	w.look(now.Add(3 * time.Second))
	if got, _ := w.look(now.Add(4 * time.Second)); len(got) != 1 {
		t.Error("the change was not found")
	}
}

// TestHOT01_Events: with events each swap of a mounted folder, and each way to
// save a file, is told; the poll is too slow to help.
func TestHOT01_Events(t *testing.T) {
	dir := t.TempDir()
	conf := &mounted{t: t, dir: filepath.Join(dir, "conf")}
	must(t, os.Mkdir(conf.dir, 0o700))
	conf.swap(map[string]string{"pipelines.yaml": "1", "word.wasm": "1"})
	// A link to a file in a release that `current` leads to.
	must(t, os.MkdirAll(dir+"/releases/1", 0o700))
	must(t, os.MkdirAll(dir+"/releases/2", 0o700))
	put(t, dir+"/releases/1/x", "1")
	put(t, dir+"/releases/2/x", "2")
	must(t, os.Symlink("1", dir+"/releases/current"))
	must(t, os.Symlink("releases/current/x", dir+"/x"))
	w := New(Options{Poll: time.Hour, Settle: 10 * time.Millisecond})
	w.Watch(conf.dir+"/pipelines.yaml", conf.dir+"/word.wasm", dir+"/x")
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan []string)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(paths []string) {
			select {
			case told <- paths:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { cancel(); <-done }()
	await := func(what string, paths ...string) {
		t.Helper()
		missing := map[string]bool{}
		for _, p := range paths {
			missing[p] = true
		}
		for len(missing) > 0 {
			select {
			case got := <-told:
				for _, p := range got {
					delete(missing, p)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: not told of %v", what, missing)
			}
		}
	}
	for _, v := range []string{"2", "3", "4"} {
		conf.swap(map[string]string{"pipelines.yaml": v, "word.wasm": v})
		await("swap to "+v, conf.dir+"/pipelines.yaml", conf.dir+"/word.wasm")
	}
	must(t, os.Symlink("2", dir+"/releases/next"))
	must(t, os.Rename(dir+"/releases/next", dir+"/releases/current"))
	await("link on the way", dir+"/x")
	put(t, dir+"/releases/2/x", "3")
	await("behind the new link", dir+"/x")
	// In place of a file that was a link, and back.
	put(t, conf.dir+"/new", "5")
	must(t, os.Rename(conf.dir+"/new", conf.dir+"/pipelines.yaml"))
	await("file instead of a link", conf.dir+"/pipelines.yaml")
	if got := w.Mode(); got != "events" {
		t.Errorf("mode %q, want events", got)
	}
}
