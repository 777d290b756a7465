package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestCacheFolderMustBeOurs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are not the rule there")
	}
	dir := t.TempDir()
	fresh := filepath.Join(dir, "a", "fresh")
	if _, err := New(t.Context(), Options{CacheDir: fresh}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(fresh); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	wide := filepath.Join(dir, "wide")
	os.Mkdir(wide, 0o755)
	os.Chmod(wide, 0o755)
	link := filepath.Join(dir, "link")
	os.Symlink(fresh, link)
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	for path, want := range map[string]string{
		wide: "open compile cache: " + wide + " has mode 0755; it holds native code: chmod 700 " + wide,
		link: "open compile cache: " + link + " is a symbolic link; name the folder itself",
		file: "open compile cache: " + file + " is not a folder",
	} {
		if _, err := New(t.Context(), Options{CacheDir: path}); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	if os.Geteuid() == 0 {
		theirs := filepath.Join(dir, "theirs")
		os.Mkdir(theirs, 0o700)
		os.Chown(theirs, 12345, 12345)
		if _, err := New(t.Context(), Options{CacheDir: theirs}); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("%v", err)
		}
	}
}

// cached loads the probe from dir, uses it, and gives the files of the cache
// and when each was written.
func cached(t *testing.T, dir string, limits Limits) map[string]time.Time {
	t.Helper()
	p, err := open(t, Options{CacheDir: dir}).Load(t.Context(), guest(t, "probe"), Settings{Name: "probe", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p, (&script{}).emit("", "x").ok().message())
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	files := map[string]time.Time{}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, _ := d.Info()
			files[path] = info.ModTime()
		}
		return err
	})
	return files
}

func TestCacheIsKeyedByContentAndRebuiltWhenDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	first := cached(t, dir, Limits{})
	if len(first) != 2 {
		t.Fatalf("%v", first)
	}
	same := func(a, b map[string]time.Time) bool {
		for path, at := range a {
			if !b[path].Equal(at) {
				return false
			}
		}
		return len(a) == len(b)
	}
	if again := cached(t, dir, Limits{}); !same(first, again) {
		t.Errorf("compiled again: %v, %v", first, again)
	}
	if other := cached(t, dir, Limits{Memory: 1 << 20}); len(other) != 4 {
		t.Errorf("another limit: %v", other)
	}
	// Every byte counts, the tables of offsets that wazero does not check too.
	for path := range first {
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, 12, 20, len(good) / 2, len(good) - 1} {
			bad := append([]byte(nil), good...)
			bad[at] ^= 0xff
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			cached(t, dir, Limits{})
			if now, err := os.ReadFile(path); err != nil || string(now[:at+1]) == string(bad[:at+1]) {
				t.Errorf("%s with byte %d changed was not rebuilt: %v", filepath.Base(path), at, err)
			}
		}
		os.Remove(path)
		cached(t, dir, Limits{})
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s was not rebuilt: %v", filepath.Base(path), err)
		}
	}
}

func TestCacheThatCannotBeWrittenCostsOnlyTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	r := open(t, Options{CacheDir: dir})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p, err := r.Load(t.Context(), guest(t, "echo"), Settings{Name: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p, message("x"))
}

func TestCacheSweepsWhatWasNotFinished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	cached(t, dir, Limits{})
	left := filepath.Join(dir, "abc"+workMark+"1")
	os.Mkdir(left, 0o700)
	old := time.Now().Add(-2 * time.Hour)
	os.Chtimes(left, old, old)
	cached(t, dir, Limits{})
	if _, err := os.Stat(left); err == nil {
		t.Error("still there")
	}
}

// The folder is bounded: what was used last stays longest.
func TestCacheEvicts(t *testing.T) {
	d, err := openCache(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	add := func(name string, bytes int, used time.Time) {
		e := &entry{dir: filepath.Join(d.dir, name), work: filepath.Join(d.dir, name+workMark)}
		os.Mkdir(e.work, 0o700)
		os.WriteFile(filepath.Join(e.work, "code"), make([]byte, bytes), 0o600)
		if err := e.seal(); err != nil {
			t.Fatal(err)
		}
		e.touch(used)
	}
	left := func() (names string) {
		for _, k := range []string{"a", "b", "c", "old"} {
			if _, err := os.Stat(filepath.Join(d.dir, k)); err == nil {
				names += k + " "
			}
		}
		return names
	}
	add("old", 1000, now.Add(-maxIdle-time.Hour))
	add("a", 40_000, now.Add(-3*time.Hour))
	add("b", 40_000, now.Add(-2*time.Hour))
	add("c", 40_000, now.Add(-time.Hour))
	for _, tt := range []struct {
		most int64
		want string
	}{{maxCache, "a b c "}, {100_000, "b c "}, {10_000, "c "}} {
		d.most = tt.most
		if d.evict(now); left() != tt.want {
			t.Errorf("with room for %d: %s, want %s", tt.most, left(), tt.want)
		}
	}
	// Whoever finds an entry uses it.
	dir := filepath.Join(t.TempDir(), "used")
	cached(t, dir, Limits{})
	entries := (&diskCache{dir: dir}).entries()
	if len(entries) != 1 || entries[0].size < 1000 {
		t.Fatalf("%+v", entries)
	}
	os.Chtimes(entries[0].dir, now.Add(-time.Hour), now.Add(-time.Hour))
	cached(t, dir, Limits{})
	if again := (&diskCache{dir: dir}).entries(); len(again) != 1 || again[0].used.Before(now.Add(-time.Minute)) {
		t.Errorf("%+v", again)
	}
}

func TestFallbackMemory(t *testing.T) {
	m := &heapMemory{}
	b := m.Reallocate(65536)
	b[0], b[65535] = 1, 2
	for _, size := range []uint64{131072, 1 << 20, 3 << 20} {
		b = m.Reallocate(size)
		if uint64(len(b)) != size || b[0] != 1 || b[65535] != 2 || b[65536] != 0 {
			t.Errorf("grown to %d: lost its bytes", size)
		}
	}
	m.Free()
}
