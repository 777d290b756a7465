// Command demo runs pipelines.yaml over the messages in plugins/examples/data
// and counts what came out. `make demo` builds what it needs and runs it:
//
//	go run ./test/demo
//
// It starts bin/mqrun on a fresh temporary store, feeds it with `mqrun pub`,
// waits until every pipeline has settled everything, reads the streams, and
// compares what is there with what has to be there. The last line is the
// result; the exit code is 1 when anything is lost, there twice or unexpected.
//
// # Caveats
//
// It runs in the root of the repository and opens no port.
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
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/test/demo/count"
)

// limit is the time for everything; a small machine compiles the plugins for
// a while.
const limit = 5 * time.Minute

func main() { os.Exit(doMain(os.Stdout, os.Stderr)) }

func doMain(stdout, stderr io.Writer) int {
	d := demo{out: stdout, log: stderr}
	flag.StringVar(&d.bin, "bin", "bin/mqrun", "the mqrun `FILE` to run")
	flag.StringVar(&d.config, "config", "pipelines.yaml", "the configuration `FILE`")
	data := flag.String("data", "plugins/examples/data", "`FOLDER` of the messages")
	flag.Parse()
	d.files = []string{filepath.Join(*data, "earthquakes.ndjson"), filepath.Join(*data, "damaged.ndjson")}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := d.main(ctx); err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	}
	return 0
}

// demo is one run of the pipelines over files of messages.
type demo struct {
	bin, config string
	set         []string // further arguments of `mqrun run`
	store       string   // folder of the messages' store
	files       []string
	out, log    io.Writer
}

func (d *demo) main(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if d.store, err = os.MkdirTemp("", "mqrun-demo-"); err != nil {
		return fmt.Errorf("make a store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.store)) }()
	expected, err := count.Expect(d.files...)
	if err != nil {
		return err
	}
	begin := time.Now()
	s, err := d.start(ctx)
	if err != nil {
		return err
	}
	defer s.Kill() // does nothing once it has ended
	fmt.Fprintf(d.out, "started in %.1f s\n", time.Since(begin).Seconds())
	begin = time.Now()
	if err := d.feed(ctx, nil, "--file", d.files[0], "--file", d.files[1]); err != nil {
		return err
	}
	result, err := d.count(ctx, expected)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "done in %.1f s\n\n", time.Since(begin).Seconds())
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return report(d.out, result)
}

// count waits until everything is settled and reads the streams.
func (d *demo) count(ctx context.Context, e *count.Expected) (*count.Result, error) {
	nc, js, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if err := count.Settled(ctx, js, e); err != nil {
		return nil, err
	}
	return count.Count(ctx, js, e)
}

func (d *demo) connect(ctx context.Context) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := mq.DialSocket(ctx, filepath.Join(d.store, "sock"))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("open JetStream: %w", err)
	}
	return nc, js, nil
}

// report prints the result. An error says that it is not as it has to be.
func report(w io.Writer, r *count.Result) error {
	if err := r.Print(w); err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("%d lost, %d duplicates, %d unexpected", len(r.Lost), len(r.Duplicates), len(r.Unexpected))
	}
	return nil
}
