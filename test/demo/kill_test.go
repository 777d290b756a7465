package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/test/demo/count"
)

const (
	root  = "../.."
	kills = 10
	want  = "RESULT inputs=1732 outputs=1679 filtered=28 dead=25 alerts=297 lost=0 duplicates=0"
)

// TestKill runs the demo while mqrun, but not those who feed it, is killed at
// ten random points of the work. A kill counts when some but not all inputs
// were seen to be acked right before it. So that ten points fit into two
// seconds of work, as many reports more come in for each, and no kill waits for
// those that were in work at the ones before: they come again after ack_wait.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("kills and restarts take a while")
	}
	d := newDemo(t)
	expected, err := count.Expect(d.files...)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	s, err := d.start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Kill() }()
	gate := newGate(t, d.files[0])
	fed := make(chan error, 2)
	go func() { fed <- d.feed(ctx, gate, "--lines", "--id", "earthquakes.ndjson") }()
	go func() { fed <- d.feed(ctx, nil, "--file", d.files[1]) }()
	random := rand.New(rand.NewPCG(seed, 0))
	acked, part := 1, expected.Inputs()/(kills+2)
	for i := range kills {
		point := acked + 1 + random.IntN(part/2)
		gate.open((i + 1) * part)
		acked, err = d.ackedFrom(ctx, point)
		s.Kill()
		if err != nil {
			t.Fatal(err)
		}
		if acked <= 1 || acked >= expected.Inputs() {
			t.Fatalf("kill %d came with %d of %d inputs acked: that proves nothing", i+1, acked, expected.Inputs())
		}
		t.Logf("kill %d with %d of %d inputs acked", i+1, acked, expected.Inputs())
		if s, err = d.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	gate.open(expected.Inputs())
	for range cap(fed) {
		if err := <-fed; err != nil {
			t.Fatal(err)
		}
	}
	result, err := d.count(ctx, expected)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := report(t.Output(), result); err != nil {
		t.Error(err)
	}
	if got := result.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// gate reads lines, as far as it is open.
type gate struct {
	io.Reader
	upTo chan int
}

// newGate is closed at first.
func newGate(t *testing.T, file string) *gate {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	g := &gate{r, make(chan int, kills+1)}
	t.Cleanup(func() {
		close(g.upTo)
		_ = r.Close()
	})
	go func() {
		defer w.Close()
		lines, n := bytes.SplitAfter(text, []byte("\n")), 0
		for upTo := range g.upTo {
			for ; n < min(upTo, len(lines)); n++ {
				if _, err := w.Write(lines[n]); err != nil {
					return
				}
			}
			if n == len(lines) {
				return
			}
		}
	}()
	return g
}

func (g *gate) open(upTo int) { g.upTo <- upTo }

// ackedFrom waits until at least that many inputs are acked.
func (d *demo) ackedFrom(ctx context.Context, point int) (int, error) {
	nc, js, err := d.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	c, err := js.Consumer(ctx, "MQRUN", "mqrun-parse")
	if err != nil {
		return 0, err
	}
	for {
		var info *jetstream.ConsumerInfo
		if info, err = c.Info(ctx); err != nil {
			return 0, err
		}
		if acked := int(info.AckFloor.Stream); acked >= point {
			return acked, nil
		}
	}
}

// newDemo builds mqrun and the plugins, and puts them beside a copy of the
// configuration.
func newDemo(t *testing.T) *demo {
	t.Helper()
	dir := t.TempDir()
	d := &demo{
		bin: filepath.Join(dir, "mqrun"), config: filepath.Join(dir, "pipelines.yaml"), store: filepath.Join(dir, "store"),
		out: t.Output(), log: t.Output(),
	}
	for _, name := range []string{"parse", "classify", "alert"} { // what a killed process had is delivered again so much later
		d.set = append(d.set, "--set", "pipelines."+name+".ack_wait=3s")
	}
	for _, name := range []string{"earthquakes.ndjson", "damaged.ndjson"} {
		d.files = append(d.files, filepath.Join(root, "plugins/examples/data", name))
	}
	text, err := os.ReadFile(filepath.Join(root, "pipelines.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	build(t, root, nil, "-o", d.bin, "./cmd/mqrun")
	for _, name := range []string{"parse", "enrich", "classify", "alert"} {
		build(t, filepath.Join(root, "plugins/examples"), []string{"GOOS=wasip1", "GOARCH=wasm"},
			"-buildmode=c-shared", "-o", filepath.Join(dir, "plugins/bin", name+".wasm"), "./go-"+name)
	}
	return d
}

func build(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-trimpath"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
