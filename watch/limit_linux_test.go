package watch

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLIF09_NoInotifyLeft: in a user namespace without an inotify instance the
// watcher runs, says that it only looks, and finds changes.
func TestLIF09_NoInotifyLeft(t *testing.T) {
	const inside = "MQRUN_TEST_NO_INOTIFY"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLIF09_NoInotifyLeft$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		switch {
		case err != nil && len(out) == 0:
			t.Skipf("no user namespace here: %v", err)
		case err != nil:
			t.Errorf("%v:\n%s", err, out)
		case strings.Contains(string(out), "--- SKIP"):
			t.Skipf("%s", out)
		}
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0o600); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "a")
	put(t, path, "1")
	var log bytes.Buffer
	w := New(Options{Poll: 10 * time.Millisecond, Settle: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.Watch(path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put(t, path, "2")
	mode, told := "", false
	w.Run(ctx, func([]string) {
		mode, told = w.Mode(), true
		cancel()
	})
	if !told {
		t.Error("the change was not told")
	}
	if !strings.HasPrefix(mode, "polling: ") {
		t.Errorf("mode %q, want polling and why", mode)
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "looking") {
		t.Errorf("log %q, want one warning", text)
	}
}
