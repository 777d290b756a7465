package pipeline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mqrun/mqrun/host"
)

// calls counts handler calls by payload.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(data string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[data]++
	return c.n[data]
}

func (c *calls) of(data string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[data]
}

func (c *calls) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, k := range c.n {
		n += k
	}
	return n
}

// running waits until all pipelines run and nothing is in flight.
func (r *rig) running() {
	r.t.Helper()
	r.eventually(func() error {
		for _, st := range r.m.Status() {
			if st.State != StateRunning || st.InFlight > 0 {
				return fmt.Errorf("%s is %s (%s) with %d in flight", st.Name, st.State, st.Why, st.InFlight)
			}
		}
		return nil
	})
}

// consumerMade is when the pipeline's consumer was made.
func (r *rig) consumerMade(stream, pipeline string) time.Time {
	r.t.Helper()
	var at time.Time
	r.eventually(func() error {
		c, err := r.js().Consumer(r.ctx(), stream, durable(pipeline))
		if err == nil {
			at = c.CachedInfo().Created
		}
		return err
	})
	return at
}

// mended waits until the pipeline has mended an input so often.
func (r *rig) mended(n int64) {
	r.t.Helper()
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.Mended < n || st.State != StateRunning {
			return fmt.Errorf("mended %d, %s: %s", st.Mended, st.State, st.Why)
		}
		return nil
	})
}

// TestConsumerDeleted: what was settled does not come again, what was not does:
// messages in work, given back, and behind the position.
func TestConsumerDeleted(t *testing.T) {
	for _, order := range []string{"none", "subject"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			seen, hold := &calls{}, make(chan struct{})
			r := newRig(t, `
plugins: { a: { module: a.wasm } }
pipelines: { p: { from: 'ingest.>', steps: a, to: out.p, workers: 8, max_in_flight: 32, order: `+order+`, retry: { initial: 3s, jitter: 0 } } }
`, map[string]native{"a": func(m *host.Message, res *host.Result) error {
				n := seen.add(string(m.Data))
				switch {
				case strings.HasPrefix(string(m.Data), "hold"):
					<-hold
				case string(m.Data) == "retry" && n == 1:
					res.Code = host.Retry
					return nil
				}
				return echo(m, res)
			}})
			for i := range 50 {
				r.pub(fmt.Sprintf("ingest.%d", i), strconv.Itoa(i))
			}
			r.pub("ingest.retry", "retry")
			r.pub("ingest.hold", "hold")
			for i := range 50 {
				r.pub(fmt.Sprintf("ingest.%d", i), strconv.Itoa(50+i))
			}
			r.eventually(func() error {
				if r.count("MQRUN_P", "out.p") < 100 || seen.of("hold") == 0 || seen.of("retry") == 0 {
					return errors.New("not there yet")
				}
				return nil
			})
			before := r.consumerMade("MQRUN", "p")
			if err := r.js().DeleteConsumer(t.Context(), "MQRUN", durable("p")); err != nil {
				t.Fatal(err)
			}
			close(hold)
			for i := range 20 {
				r.pub(fmt.Sprintf("ingest.%d", i), strconv.Itoa(100+i))
			}
			r.read("MQRUN_P", "out.p", 122)
			r.mended(1)
			r.settled("MQRUN", "p")
			r.running()
			if n := r.count("MQRUN_P", "out.p"); n != 122 {
				t.Errorf("%d outputs; want 122", n)
			}
			for i := range 120 {
				if n := seen.of(strconv.Itoa(i)); n != 1 {
					t.Errorf("message %d was handled %d times", i, n)
				}
			}
			if seen.of("retry") != 2 || seen.of("hold") != 1 {
				t.Errorf("retry %d times, hold %d times", seen.of("retry"), seen.of("hold"))
			}
			if after := r.consumerMade("MQRUN", "p"); !after.After(before) {
				t.Errorf("it is the consumer made at %v", after)
			}
			if !strings.Contains(r.log.String(), "the consumer was deleted; it goes on where the pipeline is") {
				t.Error("the log does not say so")
			}
			st := r.m.Status()[0]
			t.Logf("mended %d, skipped %d", st.Mended, st.Skipped)
		})
	}
}

// TestConsumerDeletedTwice: a position outlives its consumers.
func TestConsumerDeletedTwice(t *testing.T) {
	t.Parallel()
	seen := &calls{}
	r := newRig(t, echoYAML, map[string]native{"a": func(m *host.Message, res *host.Result) error {
		seen.add(string(m.Data))
		return echo(m, res)
	}})
	n := 0
	for round := range 3 {
		for range 20 {
			r.pub("ingest.other", "")
			r.pub("ingest.x", strconv.Itoa(n))
			n++
		}
		r.read("MQRUN_P", "out.p", n)
		r.settled("MQRUN", "p")
		if err := r.js().DeleteConsumer(t.Context(), "MQRUN", durable("p")); err != nil {
			t.Fatal(err)
		}
		r.mended(int64(round + 1))
	}
	r.pub("ingest.x", "last")
	r.read("MQRUN_P", "out.p", n+1)
	if seen.total() != n+1 {
		t.Errorf("%d handler calls for %d messages", seen.total(), n+1)
	}
}

func TestStreamPurged(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	r := newRig(t, echoYAML, map[string]native{"a": func(m *host.Message, res *host.Result) error {
		<-hold
		return echo(m, res)
	}})
	for i := range 20 {
		r.pub("ingest.x", strconv.Itoa(i))
	}
	r.eventually(func() error {
		if r.m.Status()[0].Handled == 0 {
			return errors.New("nothing in work")
		}
		return nil
	})
	st, err := r.js().Stream(t.Context(), "MQRUN")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(hold)
	for i := range 5 {
		r.pub("ingest.x", fmt.Sprint("new", i))
	}
	r.running()
	r.settled("MQRUN", "p")
	out := map[string]bool{}
	for _, m := range r.read("MQRUN_P", "out.p", 5) {
		out[string(m.Data())] = true
	}
	r.eventually(func() error {
		for _, m := range r.read("MQRUN_P", "out.p", r.count("MQRUN_P", "out.p")) {
			out[string(m.Data())] = true
		}
		for i := range 5 {
			if !out[fmt.Sprint("new", i)] {
				return fmt.Errorf("new%d has no output", i)
			}
		}
		return nil
	})
}

// TestStreamMadeAnew: the messages of the new stream have the sequences of the
// old one's, and are others all the same.
func TestStreamMadeAnew(t *testing.T) {
	for name, byHand := range map[string]bool{"by somebody": true, "by us": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen, hold := &calls{}, make(chan struct{})
			r := newRig(t, echoYAML, map[string]native{"a": func(m *host.Message, res *host.Result) error {
				seen.add(string(m.Data))
				if string(m.Data) == "hold" {
					<-hold
				}
				return echo(m, res)
			}})
			for i := range 10 {
				r.pub("ingest.x", fmt.Sprint("old", i))
			}
			r.read("MQRUN_P", "out.p", 10)
			r.pub("ingest.x", "hold")
			r.eventually(func() error {
				if seen.of("hold") == 0 {
					return errors.New("not in work")
				}
				return nil
			})
			st, err := r.js().Stream(t.Context(), "MQRUN")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.js().DeleteStream(t.Context(), "MQRUN"); err != nil {
				t.Fatal(err)
			}
			if byHand {
				cfg := st.CachedInfo().Config
				if _, err := r.js().CreateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 20 {
				r.pubRetry("ingest.x", fmt.Sprint("new", i))
			}
			r.mended(1)
			close(hold)
			r.read("MQRUN_P", "out.p", 31)
			r.settled("MQRUN", "p")
			r.running()
			if n := r.count("MQRUN_P", "out.p"); n != 31 || seen.total() != 31 {
				t.Errorf("%d outputs, %d calls; want 31", n, seen.total())
			}
			if !strings.Contains(r.log.String(), "the stream was deleted and made anew; the pipeline goes on with the new one") {
				t.Error("the log does not say so")
			}
		})
	}
}

// TestOutputStreamDeleted: nothing is acked meanwhile, and it is made again.
func TestOutputStreamDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t, echoYAML, map[string]native{"a": echo})
	r.pub("ingest.x", "1")
	r.read("MQRUN_P", "out.p", 1)
	if err := r.js().DeleteStream(t.Context(), "MQRUN_P"); err != nil {
		t.Fatal(err)
	}
	r.pub("ingest.x", "2")
	r.eventually(func() error {
		if st := r.m.Status()[0]; st.State != StateBlocked || !strings.Contains(st.Why, noStream) {
			return fmt.Errorf("%s: %s", st.State, st.Why)
		}
		return nil
	})
	if got := r.read("MQRUN_P", "out.p", 1); string(got[0].Data()) != "2" {
		t.Errorf("got %q", got[0].Data())
	}
	r.running()
}

// TestLIF04_StreamThatLostItsEnd: the stream's files are of an earlier time
// than the consumer's, as after a power cut or from a backup.
func TestLIF04_StreamThatLostItsEnd(t *testing.T) {
	t.Parallel()
	seen := &calls{}
	r := newRig(t, echoYAML, map[string]native{"a": func(m *host.Message, res *host.Result) error {
		seen.add(string(m.Data))
		return echo(m, res)
	}})
	for i := range 10 {
		r.pub("ingest.x", fmt.Sprint("kept", i))
	}
	r.settled("MQRUN", "p")
	restart := func(between func(messages string)) {
		r.stopManager()
		if err := r.mq.Close(); err != nil {
			t.Fatal(err)
		}
		between(filepath.Join(r.dir, "store", "jetstream", "$G", "streams", "MQRUN", "msgs"))
		r.start()
		r.apply(echoYAML)
	}
	saved := filepath.Join(r.dir, "saved")
	restart(func(messages string) {
		if err := os.CopyFS(saved, os.DirFS(messages)); err != nil {
			t.Fatal(err)
		}
	})
	for i := range 7 {
		r.pub("ingest.x", fmt.Sprint("lost", i))
	}
	r.read("MQRUN_P", "out.p", 17)
	r.settled("MQRUN", "p")
	restart(func(messages string) {
		if err := os.RemoveAll(messages); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(messages, os.DirFS(saved)); err != nil {
			t.Fatal(err)
		}
	})
	if log := r.log.String(); !strings.Contains(log, "the stream has lost its end") || !strings.Contains(log, "messages=7 last=10 delivered=17") {
		t.Errorf("the log does not say so")
	}
	for i := range 12 {
		r.pub("ingest.x", fmt.Sprint("new", i))
	}
	r.read("MQRUN_P", "out.p", 29)
	r.settled("MQRUN", "p")
	if n := r.count("MQRUN_P", "out.p"); n != 29 || seen.total() != 29 {
		t.Errorf("%d outputs, %d calls; want 29", n, seen.total())
	}
	// The next start knows the new ids too: what is delivered again is not
	// stored twice.
	c, err := r.js().Consumer(t.Context(), "MQRUN", durable("p"))
	if err != nil {
		t.Fatal(err)
	}
	if got := rewoundOf(c.CachedInfo()); len(got) != 1 || got[0] != 10 {
		t.Errorf("the consumer remembers %v", got)
	}
	restart(func(string) {})
	r.pub("ingest.x", "last")
	r.read("MQRUN_P", "out.p", 30)
	if seen.total() != 30 {
		t.Errorf("%d calls; want 30", seen.total())
	}
}
