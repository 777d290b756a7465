// Command chaos tries to break what the delivery promises, and counts:
//
//	go run ./test/chaos [-short] [-seed N] [-rounds N] [SCENARIO...]
//
// The scenarios are kill, cluster, slow, network, answers, operator, damage,
// disk, stop and reload; without a name all of them run.
//
// Each scenario runs two chained pipelines with a WebAssembly guest in real
// mqrun processes, feeds them, does its harm again and again, waits until
// everything is settled, and compares the ids in the streams with those that
// the inputs must lead to. Its last line is
//
//	RESULT scenario=.. rounds=.. confirmed=.. handled=.. outputs=.. duplicates=.. dead=.. lost=..
//
// where confirmed are inputs with a PubAck, handled are calls of the guest,
// lost are expected messages that are not in their stream and duplicates those
// that are there twice. A round with a kill counts only when some of its inputs,
// but not all, were seen to be acked right before it. The seed is printed.
//
// # Caveats
//
// It runs in the root of the repository, needs bin/mqrun, and only Linux has
// the namespace of the disk scenario; where it is not permitted that fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The limits of a scenario: what is not done by then never will be, even on a
// slow machine.
const (
	longLimit  = 15 * time.Minute
	shortLimit = 4 * time.Minute
)

func main() { os.Exit(doMain(os.Stdout, os.Stderr, os.Args[1:])) }

// scenario does harm to a bench for a number of rounds.
type scenario struct {
	name        string
	short, long int  // rounds
	once        bool // no call of the guest is done twice
	run         func(context.Context, *bench) error
}

// options are the same for all scenarios.
type options struct {
	bin, commit, inside string
	seed                uint64
	keep, short         bool
}

func scenarios() []scenario {
	return []scenario{
		{"kill", 3, 50, false, kill},
		{"cluster", 2, 30, false, cluster},
		{"slow", 1, 20, false, slow},
		{"network", 3, 60, false, network},
		{"answers", 1, 30, true, answers},
		{"operator", 5, 40, false, operator},
		{"damage", 6, 60, false, damage},
		{"disk", 2, 10, false, disk},
		{"stop", 4, 40, true, stop},
		{"reload", 4, 40, true, reload},
	}
}

func doMain(stdout, stderr io.Writer, args []string) int {
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	var o options
	f.StringVar(&o.bin, "bin", "bin/mqrun", "the mqrun `FILE` to run")
	f.StringVar(&o.commit, "commit", "each", "`WAY` in which the pipelines commit")
	f.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the random moments")
	f.BoolVar(&o.keep, "keep", false, "leave the folders of scenarios that failed")
	f.StringVar(&o.inside, "inside", "", "the tmpfs `FOLDER` of the disk scenario, inside of its namespace")
	f.BoolVar(&o.short, "short", false, "few rounds: half a minute or less for each scenario")
	rounds := f.Int("rounds", 0, "rounds of each scenario (0: its own number)")
	if err := f.Parse(args); err != nil {
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	failed := 0
	names := f.Args()
	for _, s := range scenarios() {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		n, limit := s.long, longLimit
		if o.short {
			n, limit = s.short, shortLimit
		}
		if *rounds > 0 {
			n = *rounds
		}
		if err := one(ctx, s, o, n, limit, stdout, stderr); err != nil {
			fmt.Fprintf(stderr, "chaos: %s: %v\n", s.name, err)
			failed++
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(scenarios(), func(s scenario) bool { return s.name == name }) {
			fmt.Fprintf(stderr, "chaos: there is no scenario %q\n", name)
			failed++
		}
	}
	return min(failed, 1)
}

func one(ctx context.Context, s scenario, o options, rounds int, limit time.Duration, stdout, stderr io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	b, err := newBench(s, o, rounds, stdout)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: seed %d\n", s.name, o.seed)
	err = s.run(ctx, b)
	switch {
	case errors.Is(err, errElsewhere), errors.Is(err, errCounted):
		err = nil
	case err == nil:
		err = b.count(ctx)
	}
	b.stop()
	if err != nil && !strings.Contains(err.Error(), "context canceled") {
		fmt.Fprintf(stderr, "%s", b.logs.tail())
	}
	if err != nil && o.keep {
		fmt.Fprintf(stderr, "left: %s\n", b.dir)
		return err
	}
	return errors.Join(err, b.clean())
}
