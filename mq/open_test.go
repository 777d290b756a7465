package mq_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/mqrun/mqrun/mq"
)

func TestNewEmbeddedMakesBothStreamsAndNoListener(t *testing.T) {
	q, err := mq.NewEmbedded(t.TempDir(), 100<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if a := q.GetServer().Addr(); a != nil {
		t.Errorf("the server listens on %v; want no listener", a)
	}
	for name, want := range map[string]string{mq.StreamName(): "ingest.>", mq.DLQStreamName(): "dlq.>"} {
		s, err := q.JetStream().Stream(deadline(t), name)
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		if len(c.Subjects) != 1 || c.Subjects[0] != want {
			t.Errorf("%s has subjects %q; want %q", name, c.Subjects, want)
		}
		if c.Discard != jetstream.DiscardNew || !c.AllowRollup || !c.AllowAtomicPublish || !c.AllowMsgTTL ||
			c.Duplicates != 2*time.Minute || c.Storage != jetstream.FileStorage || c.Retention != jetstream.LimitsPolicy || c.Metadata["mqrun"] != "1" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if err := q.Ping(deadline(t)); err != nil {
		t.Error(err)
	}
	if got := q.GetServer().JetStreamConfig(); !got.SyncAlways {
		t.Error("the default does not sync always")
	}
}

func TestSyncIntervalReachesTheServer(t *testing.T) {
	q := open(t, mq.Options{SyncInterval: 90 * time.Second})
	if got := q.GetServer().JetStreamConfig(); got.SyncAlways || got.SyncInterval != 90*time.Second {
		t.Errorf("always %v, interval %v", got.SyncAlways, got.SyncInterval)
	}
}

func TestStoreIsOneProcessOnly(t *testing.T) {
	dir := t.TempDir()
	cmd, stdin, next := spawn(t, "hold", dir)
	if got := next(); got != "open" {
		t.Fatalf("child says %q", got)
	}
	_, err := mq.NewEmbedded(dir, 64<<20)
	if !errors.Is(err, mq.ErrStoreLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Fatalf("second process: %v", err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "" {
		t.Fatalf("child says %q", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	q := open(t, mq.Options{StoreDir: dir})
	if _, err := mq.Open(t.Context(), mq.Options{StoreDir: dir}); !errors.Is(err, mq.ErrStoreLocked) {
		t.Fatalf("second queue in one process: %v", err)
	}
	if err := q.Publish(deadline(t), "ingest.a", nil); err != nil {
		t.Fatal("the first one broke:", err)
	}
}

func TestPublishedMessagesSurviveKill9(t *testing.T) {
	dir := t.TempDir()
	cmd, _, next := spawn(t, "publish", dir)
	for i := range 200 {
		if got := next(); got != strconv.Itoa(i) {
			t.Fatalf("child says %q; want %d", got, i)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	last := 199
	for s := next(); s != ""; s = next() { // confirmed before the kill
		last++
		if s != strconv.Itoa(last) {
			break // a torn line
		}
	}
	q := open(t, mq.Options{StoreDir: dir})
	got := make(chan string, 1)
	n := 0
	ctx := deadline(t)
	if err := q.Subscribe(ctx, "ingest.>", "c", func(m *mq.Message) error {
		got <- string(m.Data)
		return m.DoubleAck(m.Ctx)
	}); err != nil {
		t.Fatal(err)
	}
	for ; n < 200; n++ {
		if s := await(t, got, "message"); s != strconv.Itoa(n) {
			t.Fatalf("message %d is %q", n, s)
		}
		select {
		case <-ctx.Done():
			t.Fatal("too slow")
		default:
		}
	}
	go func() {
		for range got { // the rest
		}
	}()
}

func TestStoreFormat(t *testing.T) {
	for text, want := range map[string]string{"": "", "1\n": "", "2\n": "newer", "99": "newer", "x": "not a number", "0": "not a number"} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "FORMAT")
			if text != "" {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			q, err := mq.NewEmbedded(dir, 1<<20)
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("got %v; want %q", err, want)
				}
				if got := errors.Is(err, mq.ErrStoreNewer); got != (want == "newer") {
					t.Errorf("ErrStoreNewer %v: %v", got, err)
				}
				if b, _ := os.ReadFile(path); string(b) != text {
					t.Errorf("FORMAT became %q", b)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			if b, _ := os.ReadFile(path); string(b) != "1\n" {
				t.Errorf("FORMAT is %q", b)
			}
		})
	}
}

func TestUnwritableStoreIsRefusedAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := []string{file, filepath.Join(file, "below")}
	if runtime.GOOS == "linux" {
		dirs = append(dirs, "/proc/mqrun", "/proc")
	}
	if os.Getuid() > 0 {
		ro := t.TempDir()
		if err := os.Chmod(ro, 0o500); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, ro)
	}
	for _, dir := range dirs {
		_, err := mq.NewEmbedded(dir, 1<<20)
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "choose another folder") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for name, tt := range map[string]struct {
		o    mq.Options
		want string
	}{
		"no store":            {mq.Options{}, "store directory is empty"},
		"store too small":     {mq.Options{MaxBytes: 9}, "too small"},
		"payload too small":   {mq.Options{MaxPayload: 1}, "out of range"},
		"payload too large":   {mq.Options{MaxPayload: 1 << 30}, "out of range"},
		"sync negative":       {mq.Options{SyncInterval: -1}, "negative"},
		"bad subject":         {mq.Options{Subjects: []string{"a..b"}}, "empty token"},
		"reserved subject":    {mq.Options{Subjects: []string{"mqrun.a"}}, "reserved"},
		"all subjects":        {mq.Options{Subjects: []string{">"}}, "reserved"},
		"no host:port":        {mq.Options{Listen: "4222", NoAuth: true}, "host:port"},
		"bad port":            {mq.Options{Listen: "127.0.0.1:99999", NoAuth: true}, "port"},
		"no auth":             {mq.Options{Listen: "127.0.0.1:0"}, "set a token"},
		"no auth off host":    {mq.Options{Listen: "0.0.0.0:0", NoAuth: true}, "open to the network"},
		"no auth, empty host": {mq.Options{Listen: ":0", NoAuth: true}, "open to the network"},
		"not our address":     {mq.Options{Listen: "192.0.2.1:4222", Token: "x"}, "192.0.2.1"},
		"nobody at the URL":   {mq.Options{URL: "nats://u:secret@127.0.0.1:1"}, "nats://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.o.URL == "" && name != "no store" {
				tt.o.StoreDir = t.TempDir()
			}
			q, err := mq.Open(t.Context(), tt.o)
			if err == nil {
				q.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("got %v; want %q", err, tt.want)
			}
			if tt.o.Listen != "" && !errors.Is(err, mq.ErrListen) {
				t.Errorf("%v is not ErrListen", err)
			}
		})
	}
}

func TestCloseIsIdempotentAndConcurrent(t *testing.T) {
	q := open(t, mq.Options{})
	nc, err := q.Connect("more")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			if q.GetServer().Running() {
				t.Error("Close returned before the server was down")
			}
		})
	}
	wg.Wait()
	if !nc.IsClosed() {
		t.Error("a connection is left open")
	}
	ctx := context.Background()
	if err := q.Publish(ctx, "ingest.a", nil); !errors.Is(err, mq.ErrClosed) {
		t.Errorf("publish: %v", err)
	}
	if err := q.Subscribe(ctx, "ingest.a", "c", func(*mq.Message) error { return nil }); !errors.Is(err, mq.ErrClosed) {
		t.Errorf("subscribe: %v", err)
	}
	if err := q.Ping(ctx); !errors.Is(err, mq.ErrClosed) {
		t.Errorf("ping: %v", err)
	}
	if _, err := q.Connect("x"); !errors.Is(err, mq.ErrClosed) {
		t.Errorf("connect: %v", err)
	}
}

func TestLIF01_TheServerTakesNoSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("signals cannot be sent to another process")
	}
	cmd, _, next := spawn(t, "signal", t.TempDir())
	if got := next(); got != "begun" {
		t.Fatalf("child says %q", got)
	}
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"acked <nil>", "closed <nil>", ""} {
		if got := next(); got != want {
			t.Errorf("child says %q; want %q", got, want)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestServerThatCannotStartIsAnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jetstream", "$G")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mq.NewEmbedded(dir, 1<<20); err == nil || !strings.Contains(err.Error(), path) { // the server calls it fatal
		t.Fatalf("got %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	open(t, mq.Options{StoreDir: dir})
}

func TestPingSeesThatJetStreamIsOff(t *testing.T) {
	q := open(t, mq.Options{})
	if err := q.Ping(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if err := q.GetServer().DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := q.Ping(ctx); err == nil {
		t.Error("it says that all is well")
	}
}

func TestOpenStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := mq.Open(ctx, mq.Options{StoreDir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	open(t, mq.Options{StoreDir: dir})
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	before := goleak.IgnoreCurrent()
	q, err := mq.Open(t.Context(), mq.Options{StoreDir: t.TempDir(), Socket: filepath.Join(shortDir(t), "sock"), Listen: "127.0.0.1:0", NoAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, q, "x")
	got := make(chan bool, 1)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		err := m.DoubleAck(m.Ctx)
		got <- true
		return err
	})
	await(t, got, "message")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
}
