package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mqrun/mqrun/mq"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"mqrun": main})
}

// TestScripts runs the commands as people do. The guests of testdata/guest are
// in the folder of each script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			cache, err := exec.Command("go", "env", "GOCACHE").Output()
			if err != nil {
				return err
			}
			e.Setenv("GO_CACHE", strings.TrimSpace(string(cache)))
			e.Setenv("ONLY_MQRUN", filepath.SplitList(e.Getenv("PATH"))[0]) // a PATH without any tool
			return copyGuests(e.WorkDir)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":        exitCode,
			"await":       await,
			"fill":        fill,
			"awaitorphan": awaitOrphan,
			"awaitlast": func(ts *testscript.TestScript, _ bool, args []string) {
				await(ts, false, []string{args[0], "last " + args[1]})
			},
			"append": func(ts *testscript.TestScript, _ bool, args []string) {
				text := ts.ReadFile(args[0]) + ts.ReadFile(args[1])
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
		},
	})
}

func copyGuests(dir string) error {
	guests, err := filepath.Glob("testdata/guest/*.wasm")
	if err != nil {
		return err
	}
	for _, g := range guests {
		wasm, err := os.ReadFile(g)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(g)), wasm, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// exitCode is `code N COMMAND...`: the command must end with exactly N.
func exitCode(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%s ended with %s, want %s\n%s", strings.Join(args[1:], " "), got, args[0], ts.ReadFile("stderr"))
	}
}

// await is `await STREAM CONSUMER` or `await STREAM N`: it waits until the
// running mqrun has the consumer, or that many messages in the stream.
// `awaitlast STREAM N` waits for the sequence.
func await(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for t := time.NewTicker(20 * time.Millisecond); ; {
		err := there(ctx, ts.MkAbs(".mqrun/sock"), args[0], args[1])
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("await %s: %v", strings.Join(args, " "), err)
		case <-t.C:
		}
	}
}

// awaitOrphan waits until a consumer has lost its pipeline.
func awaitOrphan(ts *testscript.TestScript, _ bool, _ []string) {
	deadline := time.After(time.Minute)
	for t := time.NewTicker(50 * time.Millisecond); ; {
		if err := ts.Exec("mqrun", "consumers", "ls"); err == nil && strings.Contains(ts.ReadFile("stdout"), "orphan") {
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("no orphan: %s", ts.ReadFile("stdout"))
		case <-t.C:
		}
	}
}

func there(ctx context.Context, socket, stream, what string) error {
	nc, err := mq.DialSocket(ctx, socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	what, last := strings.CutPrefix(what, "last ")
	n, err := strconv.ParseUint(what, 10, 64)
	if err != nil {
		_, err := js.Consumer(ctx, stream, what)
		return err
	}
	st, err := js.Stream(ctx, stream)
	if err == nil && last && st.CachedInfo().State.LastSeq < n {
		return fmt.Errorf("sequence %d of %d", st.CachedInfo().State.LastSeq, n)
	}
	if err == nil && !last && st.CachedInfo().State.Msgs < n {
		return fmt.Errorf("%d of %d messages", st.CachedInfo().State.Msgs, n)
	}
	return err
}

// fill is `fill FILE N`: a file of N bytes.
func fill(ts *testscript.TestScript, _ bool, args []string) {
	var n int
	if _, err := fmt.Sscan(args[1], &n); err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat("a", n)+"\n"), 0o600))
}
