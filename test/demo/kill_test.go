package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestKill runs the demo while mqrun, but not the one who feeds it, is killed
// at ten random points of the work. A kill counts when some but not all inputs
// were seen to be acked right before it.
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
	points := killPoints(rand.New(rand.NewPCG(seed, 0)), expected.Inputs())
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	s, err := d.start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	fed := make(chan error, 1)
	go func() { fed <- d.feed(ctx, "2m") }()
	for i, point := range points {
		acked, err := d.ackedFrom(ctx, point)
		s.kill()
		if err != nil {
			t.Fatal(err)
		}
		if acked <= 1 || acked >= uint64(expected.Inputs()) {
			t.Fatalf("kill %d came with %d of %d inputs acked: that proves nothing", i+1, acked, expected.Inputs())
		}
		t.Logf("kill %d with %d of %d inputs acked", i+1, acked, expected.Inputs())
		if s, err = d.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { s.kill() }()
	if err := <-fed; err != nil {
		t.Fatal(err)
	}
	result, err := d.count(ctx, expected)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stop(ctx); err != nil {
		t.Error(err)
	}
	if err := report(t.Output(), result); err != nil {
		t.Error(err)
	}
	if got := result.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// killPoints are sorted numbers of acked inputs, in the first nine tenths so
// that the last kill still comes in time.
func killPoints(r *rand.Rand, inputs int) []uint64 {
	points := make([]uint64, kills)
	for i := range points {
		points[i] = 2 + r.Uint64N(uint64(inputs)*9/10-2)
	}
	slices.Sort(points)
	return points
}

// ackedFrom waits until at least that many inputs are acked.
func (d *demo) ackedFrom(ctx context.Context, point uint64) (uint64, error) {
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
		if acked := info.AckFloor.Stream; acked >= point {
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
