package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// arrival is when a message was sent, and how long it took to come out.
type arrival struct {
	sent time.Time
	took time.Duration
}

// load publishes messages at a steady rate and reads what comes out.
type load struct {
	h        *house
	js       jetstream.JetStream
	nc       *nats.Conn
	pull     jetstream.MessagesContext
	began    time.Time // of the constant load
	quit     chan struct{}
	feeding  sync.WaitGroup
	reading  sync.WaitGroup
	failures chan error

	mu      sync.Mutex
	sent    []jetstream.PubAckFuture
	arrived []arrival
}

func newLoad(ctx context.Context, h *house) (*load, error) {
	nc, err := h.q.Connect("load")
	if err != nil {
		return nil, err
	}
	l := &load{h: h, nc: nc, quit: make(chan struct{}), failures: make(chan error, 1)}
	if l.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(20_000)); err != nil {
		return nil, err
	}
	c, err := l.js.OrderedConsumer(ctx, "MQRUN_LOAD", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"load.out"}})
	if err != nil {
		return nil, err
	}
	if l.pull, err = c.Messages(); err != nil {
		return nil, err
	}
	l.reading.Go(l.read)
	return l, nil
}

func (l *load) read() {
	for {
		m, err := l.pull.Next()
		if err != nil {
			return
		}
		_, at, _ := strings.Cut(string(m.Data()), " ")
		ns, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			l.failures <- fmt.Errorf("an output is %q", m.Data())
			return
		}
		sent := time.Unix(0, ns)
		l.mu.Lock()
		l.arrived = append(l.arrived, arrival{sent, time.Since(sent)})
		l.mu.Unlock()
	}
}

func (l *load) publish() error {
	l.mu.Lock()
	id := len(l.sent)
	l.mu.Unlock()
	f, err := l.js.PublishAsync("ingest.load", fmt.Appendf(nil, "%d %d", id, time.Now().UnixNano()), jetstream.WithStallWait(time.Minute))
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.sent = append(l.sent, f)
	l.mu.Unlock()
	return nil
}

// capacity is how many messages a second go through when all are there.
func (l *load) capacity(ctx context.Context, n int) (float64, error) {
	begin := time.Now()
	for range n {
		if err := l.publish(); err != nil {
			return 0, err
		}
	}
	if err := l.drained(ctx); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// drained waits until as many came out as went in.
func (l *load) drained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		l.mu.Lock()
		missing := len(l.sent) - len(l.arrived)
		l.mu.Unlock()
		if missing <= 0 {
			return nil
		}
		select {
		case err := <-l.failures:
			return err
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil // compare tells what is missing
		}
	}
}

// begin publishes at the rate until end.
func (l *load) begin(ctx context.Context, rate float64) {
	l.began = time.Now()
	l.feeding.Go(func() {
		t := time.NewTicker(time.Millisecond)
		defer t.Stop()
		n := 0
		for {
			select {
			case <-l.quit:
				return
			case <-ctx.Done():
				return
			case <-t.C:
			}
			for due := int(time.Since(l.began).Seconds() * rate); n < due; n++ {
				if err := l.publish(); err != nil {
					l.failures <- err
					return
				}
			}
		}
	})
}

// until is the constant load so far.
func (l *load) until(end time.Time) window { return window{l.began, end} }

func (l *load) end(ctx context.Context) error {
	close(l.quit)
	l.feeding.Wait()
	select {
	case err := <-l.failures:
		return err
	case <-l.js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.drained(ctx)
}

func (l *load) stop() {
	l.pull.Stop()
	l.reading.Wait()
	l.nc.Close()
}

// after is how long behind a swap a message still belongs to it.
const after = 100 * time.Millisecond

// latencies are those of the messages sent in the windows.
func (l *load) latencies(ws ...window) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for _, a := range l.arrived {
		if slices.ContainsFunc(ws, func(w window) bool { return !a.sent.Before(w.begin) && !a.sent.After(w.end.Add(after)) }) {
			all = append(all, a.took)
		}
	}
	return all
}

// compare reads the output stream: each message that was confirmed must be
// there once. Handled or delivered more often than there are inputs is
// redelivered.
func (l *load) compare(ctx context.Context, commit string) (lost, duplicates, redelivered int, err error) {
	want := map[string]bool{}
	for id, f := range l.sent {
		select {
		case <-f.Ok():
			want[strconv.Itoa(id)] = true
		case err := <-f.Err():
			return 0, 0, 0, fmt.Errorf("publish %d: %w", id, err)
		case <-ctx.Done():
			return 0, 0, 0, ctx.Err()
		}
	}
	st, err := l.js.Stream(ctx, "MQRUN_LOAD")
	if err != nil {
		return 0, 0, 0, err
	}
	info, err := st.Info(ctx, jetstream.WithSubjectFilter("load.out"))
	if err != nil {
		return 0, 0, 0, err
	}
	n := int(info.State.Subjects["load.out"]) //nolint:gosec // small
	c, err := l.js.OrderedConsumer(ctx, "MQRUN_LOAD", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"load.out"}})
	if err != nil {
		return 0, 0, 0, err
	}
	it, err := c.Messages()
	if err != nil {
		return 0, 0, 0, err
	}
	defer it.Stop()
	found := map[string]int{}
	for range n {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return 0, 0, 0, err
		}
		id, _, _ := strings.Cut(string(m.Data()), " ")
		found[id]++
		if found[id] == 2 {
			duplicates++
		}
	}
	for id := range want {
		if found[id] == 0 {
			lost++
		}
	}
	for _, s := range l.h.m.Status() {
		if s.Name == "load" {
			redelivered = int(s.Handled) - len(want)
		}
	}
	if commit == "each" {
		c, err := l.js.Consumer(ctx, "MQRUN", "mqrun-load")
		if err != nil {
			return 0, 0, 0, err
		}
		redelivered = max(redelivered, int(c.CachedInfo().Delivered.Consumer)-len(want)) //nolint:gosec // small
	}
	if redelivered < 0 {
		err = errors.New("fewer were handled than went in")
	}
	return lost, duplicates, redelivered, err
}
