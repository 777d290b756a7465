package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

// handler is what a step runs: one message in, a verdict and outputs out.
type handler interface {
	Handle(ctx context.Context, m *host.Message, r *host.Result) error
}

// step is a plugin's place in a pipeline.
type step struct {
	name   string // of the plugin
	plugin string // name@sha256:12, as dead letters show it
	run    handler
}

// chain is what messages are handled with: the steps and the settings that
// can change under a running pipeline. A message ends on the chain that it
// began on.
type chain struct {
	cfg        *config.Pipeline
	generation uint64
	steps      []step
	deny       []string // dead letter subjects of all pipelines

	trials []*trial // of plugins among the steps
	trying bool     // this one has the new modules
	canary *chain   // of one that has not: gets a share of the messages
	share  float64

	mu      sync.Mutex
	users   int
	retired bool
	idle    chan struct{} // closed once retired and unused
}

func newChain(cfg *config.Pipeline, generation uint64, steps []step, deny []string) *chain {
	return &chain{cfg: cfg, generation: generation, steps: steps, deny: deny, idle: make(chan struct{})}
}

// enter reports false when the chain is retired.
func (c *chain) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return false
	}
	c.users++
	return true
}

func (c *chain) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.retired && c.users == 0 {
		close(c.idle)
	}
}

// retire lets no further message in, into its canary neither; idle closes when
// the last one left.
func (c *chain) retire() {
	if c.canary != nil {
		c.canary.retire()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return
	}
	c.retired = true
	if c.users == 0 {
		close(c.idle)
	}
}

// walk is one message on its way through the steps.
type walk struct {
	pipe   *walker
	s      *slot
	before failures
	rec    *record // in the crash journal
	outs   []output
	out    outcome
	text   string // the failure for people
	whole  bool   // text is a whole line, with the plugin and the message in it
	step   *step  // where it failed
	log    []byte
	bytes  int64
	msgs   []*host.Message // by step, used again
}

// reset makes w ready for another message and keeps its memory.
func (w *walk) reset() {
	clear(w.outs)
	for _, m := range w.msgs {
		m.Data, m.Header = nil, nil
	}
	w.pipe, w.s, w.before, w.rec, w.outs = nil, nil, failures{}, nil, w.outs[:0]
	w.out, w.text, w.whole, w.step, w.log, w.bytes = outcome{}, "", false, nil, nil, 0
	if cap(w.outs) > keepPubs {
		w.outs = nil
	}
}

// message is what step n gets.
func (w *walk) message(n int) *host.Message {
	for len(w.msgs) <= n {
		w.msgs = append(w.msgs, new(host.Message))
	}
	return w.msgs[n]
}

// output is what leaves the pipeline, with its path.
type output struct {
	host.Output
	path string
}

var errCancelled = errors.New("stopped before the handler ended")

// run takes the message through all steps and leaves the outcome in w. An
// error means that the host stopped it, which is no failure of the message.
func (w *walk) run(ctx context.Context) error {
	s := w.s
	m := w.message(0)
	*m = host.Message{
		Subject: s.subject, Stream: s.src.stream, Pipeline: w.pipe.name,
		To: s.chain.cfg.To, Deny: s.chain.deny,
		Data: s.msg.Data, Header: s.msg.Header,
		Sequence: s.info.Sequence, Attempt: s.attempt, MaxAttempts: s.chain.cfg.Retry.Attempts,
		Time: s.info.Time, Pending: s.info.Pending,
	}
	err := w.steps(ctx, 0, m, "")
	w.out.outputs = len(w.outs)
	return err
}

// steps calls step n with m and follows its outputs, depth first. It returns
// early once the input as a whole has failed.
func (w *walk) steps(ctx context.Context, n int, m *host.Message, path string) error {
	c := w.s.chain
	st := &c.steps[n]
	m.Step, m.Last = st.name, n == len(c.steps)-1
	w.rec.step(n)
	r := w.pipe.results.Get().(*host.Result)
	r.Reset()
	w.s.results = append(w.s.results, r)
	if err := st.run.Handle(ctx, m, r); err != nil {
		return w.failed(st, r, err)
	}
	w.log = r.Log
	switch {
	case r.Code == host.OK && r.EmitFailed != "":
		w.fail(st, outcome{failure: r.EmitFailed}, r.EmitError)
		return nil
	case r.Code == host.Drop:
		w.out.dropped = true
		return nil
	case r.Code != host.OK:
		text := r.Reason
		if text == "" && r.Code != host.Retry && r.Code != host.Reject {
			text = fmt.Sprintf("the handler returned %d, which is no verdict (0 OK, 1 RETRY, 2 REJECT, 3 DROP)", r.Code)
		}
		w.fail(st, outcome{code: r.Code, delay: r.RetryAfter, delayed: r.RetrySet}, text)
		return nil
	}
	for i, o := range r.Outputs {
		at := strconv.Itoa(i)
		if path != "" {
			at = path + "." + at
		}
		if o.Subject == "" && !m.Last {
			next := w.message(n + 1)
			*next = *m
			next.Data, next.Header = o.Data, overlay(m.Header, o.Header)
			if err := w.steps(ctx, n+1, next, at); err != nil || w.step != nil {
				return err
			}
			continue
		}
		if o.Subject == "" {
			o.Subject = c.cfg.To
		}
		header := maxID + 64 + headerBytes(w.s.msg.Header, o.Header) // 64: the id's name, a batch's own
		size := int64(len(o.Data)) + header
		w.bytes += size
		if limit := w.pipe.broker.limit(o.Subject); size > limit {
			w.fail(st, outcome{failure: reasonPublish}, fmt.Sprintf("output %s to %s has %d bytes with its headers; its stream takes %d (max_msg_size)", at, o.Subject, size, limit))
			return nil
		}
		if header > maxHeader {
			w.fail(st, outcome{failure: reasonPublish}, fmt.Sprintf("output %s to %s has headers of %d bytes; the server takes %d", at, o.Subject, header, maxHeader))
			return nil
		}
		w.outs = append(w.outs, output{Output: o, path: at})
	}
	if w.bytes > maxInFlightBytes/2 {
		w.fail(st, outcome{failure: reasonPublish}, fmt.Sprintf("outputs of one message have %d bytes in all; a pipeline holds %d", w.bytes, maxInFlightBytes/2))
	}
	return nil
}

func (w *walk) fail(st *step, o outcome, text string) {
	w.step, w.out, w.text, w.outs = st, o, text, w.outs[:0]
}

// failed sorts the error of a call that did not return.
func (w *walk) failed(st *step, r *host.Result, err error) error {
	if ce, ok := errors.AsType[*host.CallError](err); ok {
		w.log, w.whole = r.Log, true
		w.fail(st, outcome{failure: ce.Reason}, ce.Text)
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return errCancelled
	}
	return fmt.Errorf("step %s: %w", st.name, err)
}
