package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/test/mqprocess"
)

//go:embed testdata/work.wasm
var guest []byte

// pipelines are chained, retry quickly, and have a step that does what the
// input says. The first argument is what a reload changes, the second what the
// scenario wants of both, the third the window of their outputs' ids.
const pipelines = `
web: { listen: "" }
streams: { MID: { subjects: [mid.x], duplicate_window: %[3]s }, OUT: { subjects: [out.x], duplicate_window: %[3]s } }
plugins: { work: { module: work.wasm, config: { reload: "%[1]d" } } }
pipelines:
  first: { from: ingest.x, steps: work, to: mid.x, %[2]s, retry: { initial: 50ms, jitter: 0 } }
  second: { from: mid.x, steps: work, to: out.x, %[2]s, retry: { initial: 50ms, jitter: 0 } }
`

// The streams of these pipelines.
const (
	inStream   = "MQRUN"
	midStream  = "MID"
	outStream  = "OUT"
	deadStream = "MQRUN_DLQ"
)

// bench is one scenario's folder, processes and inputs.
type bench struct {
	options
	name     string
	begin    time.Time
	once     bool // no call of the guest may be done twice
	dir      string
	rounds   int
	random   *rand.Rand
	out      io.Writer
	way      way    // of options.commit
	settings string // of both pipelines
	kinds    []string
	more     string              // figures of the scenario's own
	spare    int                 // calls that may be done again: what a crash had in work
	taken    map[string][]string // by stream: what damage took, with a word of mqrun's

	head    string // of the configuration: server or nats
	url     string // where we connect
	proc    []*mqprocess.Process
	nc      *nats.Conn
	js      jetstream.JetStream
	logs    *logs
	reloads int
	done    int // rounds that count

	pause sync.RWMutex // held for reading by whoever publishes

	mu     sync.Mutex
	inputs []string // confirmed
	next   int
}

func newBench(s scenario, o options, rounds int, out io.Writer) (*bench, error) {
	w, ok := ways[o.commit]
	if !ok {
		return nil, fmt.Errorf("there is no commit %q", o.commit)
	}
	dir, err := os.MkdirTemp("", "mqrun-chaos-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	b := &bench{
		options: o, name: s.name, begin: time.Now(), once: s.once, way: w, dir: dir, rounds: rounds, out: out, logs: newLogs(), kinds: mixed, taken: map[string][]string{},
		random: rand.New(rand.NewPCG(o.seed, 0)), settings: "ack_wait: 2s, max_in_flight: 128, commit: " + o.commit,
	}
	if err := os.WriteFile(filepath.Join(dir, "work.wasm"), guest, 0o600); err != nil {
		return nil, err
	}
	return b, nil
}

// serve is the configuration of a server of our own, on a port of loopback.
func (b *bench) serve(store string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	b.url = "nats://" + address
	b.head = fmt.Sprintf("server: { store_dir: %q, sync: always, max_bytes: 1GiB, listen: %q, auth: none }\n", store, address)
	return b.configure()
}

// configure writes the configuration, a little different each time.
func (b *bench) configure() error {
	b.reloads++
	return os.WriteFile(b.config(), []byte(b.head+fmt.Sprintf(pipelines, b.reloads, b.settings, b.way.window)), 0o600)
}

func (b *bench) config() string { return filepath.Join(b.dir, "pipelines.yaml") }

// connect is our own connection, which survives restarts.
func (b *bench) connect(ctx context.Context) error {
	if b.nc != nil {
		return nil
	}
	var err error
	for {
		b.nc, err = nats.Connect(b.url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err == nil {
			break
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return err
		}
	}
	b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(2*time.Second))
	return err
}

// run starts a mqrun process with the configuration and waits until it is up.
func (b *bench) run(ctx context.Context) (*mqprocess.Process, error) {
	p, err := mqprocess.Start(ctx, b.bin, b.config(), b.logs.of(len(b.proc)), "--log-format", "json")
	if err != nil {
		return nil, err
	}
	b.proc = append(b.proc, p)
	return p, nil
}

// stop ends what is left.
func (b *bench) stop() {
	for _, p := range b.proc {
		p.Kill()
	}
	if b.nc != nil {
		b.nc.Close()
	}
}

func (b *bench) clean() error { return os.RemoveAll(b.dir) }

// mixed are kinds of an input: what the first and the second pipeline do with it.
var mixed = []string{"ee", "ee", "ee", "ee", "es", "se", "fe", "ef", "re", "er", "te", "et", "de", "ed", "ft", "fr"}

// input makes the next one: two letters, a number, and room for a letter.
func (b *bench) input() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	return fmt.Sprintf("%s%06d-", b.kinds[b.random.IntN(len(b.kinds))], b.next)
}

// feed publishes n inputs, each until it is confirmed, a few at a time.
func (b *bench) feed(ctx context.Context, n int) error {
	work := make(chan string)
	var wg sync.WaitGroup
	errs := make(chan error, 32)
	for range cap(errs) {
		wg.Go(func() {
			for in := range work {
				if err := b.publish(ctx, in); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	var err error
	for range n {
		select {
		case work <- b.input():
			continue
		case err = <-errs:
		}
		break
	}
	close(work)
	wg.Wait()
	select {
	case e := <-errs:
		err = errors.Join(err, e)
	default:
	}
	return err
}

// publish repeats an input, with one id, until it is confirmed.
func (b *bench) publish(ctx context.Context, in string) error {
	m := &nats.Msg{Subject: "ingest.x", Data: []byte(in), Header: nats.Header{"Nats-Msg-Id": {in}}}
	for {
		b.pause.RLock()
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := b.js.PublishMsg(try, m, jetstream.WithRetryAttempts(0))
		cancel()
		b.pause.RUnlock()
		if err == nil {
			b.mu.Lock()
			b.inputs = append(b.inputs, in)
			b.mu.Unlock()
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("publish %s: %w", in, err)
		}
	}
}

// sleep is false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
