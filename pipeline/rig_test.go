package pipeline

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// native is a handler written in Go, in a plugin's place.
type native func(m *host.Message, r *host.Result) error

func (f native) Handle(_ context.Context, m *host.Message, r *host.Result) error { return f(m, r) }

func emit(r *host.Result, subject, data string, fields ...host.Field) {
	r.Outputs = append(r.Outputs, host.Output{Subject: subject, Data: []byte(data), Header: fields})
}

// rig is an embedded server and a manager whose plugins are native.
type rig struct {
	t      testing.TB
	dir    string
	listen string // of the embedded server
	url    string // of a server to use instead
	copies int    // replicas there
	killed bool
	mq     *mq.EmbeddedNATS
	m      *Manager
	sync   time.Duration // of the store; 0 is always
	native map[string]native
	log    *syncWriter
}

type syncWriter struct {
	mu sync.Mutex
	b  strings.Builder
}

func (w *syncWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *syncWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func newRig(t *testing.T, yaml string, plugins map[string]native) *rig {
	t.Helper()
	r := &rig{t: t, sync: time.Minute, dir: t.TempDir(), native: plugins, log: &syncWriter{}}
	r.start()
	t.Cleanup(r.stop)
	r.apply(yaml)
	return r
}

func (r *rig) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func (r *rig) start() {
	r.t.Helper()
	err := os.MkdirAll(filepath.Join(r.dir, "store"), 0o700)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mq, err = mq.Open(r.ctx(), mq.Options{URL: r.url, Replicas: r.copies, Listen: r.listen, NoAuth: true, StoreDir: filepath.Join(r.dir, "store"), MaxBytes: 1 << 30, SyncInterval: r.sync, Bare: true, Logger: r.logger()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.m, err = Open(r.ctx(), Options{MQ: r.mq, Logger: r.logger(), MaxBytes: 1 << 30, MaxPayload: 1 << 20, StoreDir: filepath.Join(r.dir, "store")})
	if err != nil {
		r.t.Fatal(err)
	}
	r.goNative()
}

// goNative gives the manager native plugins.
func (r *rig) goNative() {
	r.m.load = func(_ context.Context, c *config.Plugin, _ int, have []*plugin) (*plugin, error) {
		module, err := os.ReadFile(c.Path)
		if err != nil {
			return nil, err
		}
		digest := nativeDigest(string(module))
		if p, err := among(have, c, c.Hash(), digest); p != nil || err != nil {
			return p, err
		}
		f := r.native[strings.TrimSpace(string(module))]
		if f == nil {
			return nil, fmt.Errorf("no native plugin %q", module)
		}
		return &plugin{settings: c.Hash(), digest: digest, run: f}, nil
	}
}

// nativeDigest is that of a native plugin: one that a test can name.
func nativeDigest(module string) string {
	return hex.EncodeToString([]byte(fmt.Sprintf("%-32s", strings.TrimSpace(module))))
}

func (r *rig) stop() {
	wait := 10 * time.Second
	if r.killed {
		wait = 10 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := r.m.Drain(ctx); err != nil {
		r.t.Log(err)
	}
	if err := r.mq.Close(); err != nil {
		r.t.Error(err)
	}
	if r.t.Failed() {
		r.t.Log(r.log.String())
	}
}

// load reads the configuration; each plugin's module is a file that names the
// native one.
func (r *rig) load(yaml string) *config.Config {
	r.t.Helper()
	cfg, err := r.tryLoad(yaml)
	if err != nil {
		r.t.Fatal(err)
	}
	return cfg
}

func (r *rig) tryLoad(yaml string) (*config.Config, error) {
	r.t.Helper()
	for name := range r.native {
		r.write(name+".wasm", name)
	}
	r.write("pipelines.yaml", yaml)
	return config.Load(config.LoadOptions{Files: []string{filepath.Join(r.dir, "pipelines.yaml")}})
}

func (r *rig) apply(yaml string) Plan {
	r.t.Helper()
	p, err := r.m.Apply(r.ctx(), r.load(yaml))
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) ctx() context.Context { return r.t.Context() }

func (r *rig) js() jetstream.JetStream { return r.mq.JetStream() }

func (r *rig) pub(subject, data string, header ...string) *jetstream.PubAck {
	r.t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		m.Header[header[i]] = append(m.Header[header[i]], header[i+1])
	}
	ack, err := r.js().PublishMsg(r.ctx(), m)
	if err != nil {
		r.t.Fatal(err)
	}
	return ack
}

// read returns the first n messages of a subject as they come, and fails when
// they do not.
func (r *rig) read(stream, subject string, n int) []jetstream.Msg {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx(), 30*time.Second)
	defer cancel()
	var c jetstream.Consumer
	r.eventually(func() (err error) {
		c, err = r.js().OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
		return err
	})
	it, err := c.Messages(jetstream.PullExpiry(time.Second))
	if err != nil {
		r.t.Fatal(err)
	}
	defer it.Stop()
	var got []jetstream.Msg
	for len(got) < n {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			r.t.Fatalf("%d of %d messages on %s: %v", len(got), n, subject, err)
		}
		got = append(got, m)
	}
	return got
}

// count is how many messages a subject has in its stream.
func (r *rig) count(stream, subject string) int {
	r.t.Helper()
	s, err := r.js().Stream(r.ctx(), stream)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(r.ctx(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		r.t.Fatal(err)
	}
	n := uint64(0)
	for _, v := range info.State.Subjects {
		n += v
	}
	return int(n)
}

// checkpoint is the one of a pipeline with commit: batch, in its own stream.
func (r *rig) checkpoint(pipeline string) checkpoint {
	r.t.Helper()
	out := "MQRUN_" + strings.ToUpper(pipeline)
	c, err := readCheckpoint(r.ctx(), r.js(), out, checkpointSubject(out, pipeline))
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// settled waits until the pipeline has nothing pending or unacked.
func (r *rig) settled(stream, pipeline string) {
	r.t.Helper()
	r.eventually(func() error {
		if p := r.m.Config().Pipelines[pipeline]; p != nil && p.Commit == "batch" {
			s, err := r.js().Stream(r.ctx(), stream)
			if err != nil {
				return err
			}
			if c, last := r.checkpoint(pipeline), s.CachedInfo().State.LastSeq; c.Sequence < last {
				return fmt.Errorf("the checkpoint is at %d of %d", c.Sequence, last)
			}
			for _, st := range r.m.Status() {
				if st.Name == pipeline && st.InFlight+st.Parked > 0 {
					return fmt.Errorf("%d in flight, %d parked", st.InFlight, st.Parked)
				}
			}
			return nil
		}
		c, err := r.js().Consumer(r.ctx(), stream, durable(pipeline))
		if err != nil {
			return err
		}
		i := c.CachedInfo()
		if i.NumPending > 0 || i.NumAckPending > 0 {
			return fmt.Errorf("%d pending, %d unacked", i.NumPending, i.NumAckPending)
		}
		// The consumer hears of a stored message a bit after its publisher does.
		if last := r.last(stream, append(i.Config.FilterSubjects, i.Config.FilterSubject)...); i.Delivered.Stream < last {
			return fmt.Errorf("delivered up to %d of %d", i.Delivered.Stream, last)
		}
		return nil
	})
}

// last is the sequence of the last message of a stream on one of the filters.
func (r *rig) last(stream string, filters ...string) (last uint64) {
	r.t.Helper()
	s, err := r.js().Stream(r.ctx(), stream)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range filters {
		if f == "" && len(filters) > 1 {
			continue
		}
		m, err := s.GetLastMsgForSubject(r.ctx(), cmp.Or(f, ">"))
		if err == nil {
			last = max(last, m.Sequence)
		} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
			r.t.Fatal(err)
		}
	}
	return last
}

// acked waits until the pipeline has settled the message at sequence and all
// before it. Right after a publish the consumer may not know of it yet.
func (r *rig) acked(stream, pipeline string, sequence uint64) {
	r.t.Helper()
	r.eventually(func() error {
		c, err := r.js().Consumer(r.ctx(), stream, durable(pipeline))
		if err != nil {
			return err
		}
		if f := c.CachedInfo().AckFloor.Stream; f < sequence {
			return fmt.Errorf("acked up to %d of %d", f, sequence)
		}
		return nil
	})
}

// idle waits until the pipeline holds nothing and the server knows it.
func (r *rig) idle(pipeline string) {
	r.t.Helper()
	r.eventually(func() error {
		for _, st := range r.m.Status() {
			if st.Name == pipeline && st.InFlight > 0 {
				return fmt.Errorf("%d in flight", st.InFlight)
			}
		}
		return nil
	})
}

// eventually polls what has no event of its own.
func (r *rig) eventually(f func() error) {
	r.t.Helper()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	deadline := time.After(30 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-t.C:
		case <-deadline:
			r.t.Fatalf("after 30s: %v", err)
		}
	}
}

func (r *rig) stopManager() {
	r.t.Helper()
	if err := r.m.Drain(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) restartManager(yaml string) {
	r.t.Helper()
	var err error
	if r.m, err = Open(r.ctx(), r.m.o); err != nil {
		r.t.Fatal(err)
	}
	r.goNative()
	r.apply(yaml)
}

// rawPublish sends header bytes that the client library would not, and returns
// the PubAck's payload.
func (r *rig) rawPublish(subject, header, data string) []byte {
	r.t.Helper()
	nc, err := r.mq.GetServer().InProcessConn()
	if err != nil {
		r.t.Fatal(err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	if _, err := in.ReadString('\n'); err != nil { // INFO
		r.t.Fatal(err)
	}
	fmt.Fprintf(nc, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\nSUB ack 1\r\nHPUB %s ack %d %d\r\n%s%s\r\n", subject, len(header), len(header)+len(data), header, data)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(line, "-ERR"):
			r.t.Fatal(line)
		case strings.HasPrefix(line, "MSG "), strings.HasPrefix(line, "HMSG "):
			ack, err := in.ReadString('\n')
			if err != nil {
				r.t.Fatal(err)
			}
			return []byte(ack)
		}
	}
}
