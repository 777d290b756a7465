package mq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/subject"
)

const (
	ackWait = 30 * time.Second
	// prefetch is how many messages a subscription holds while its handler
	// runs. They are kept alive, so it costs memory only.
	prefetch = 32
	// maxAckPending is large because messages that wait for their redelivery
	// count: a few hundred failing ones would stop all others.
	maxAckPending = 100_000
)

// Subscribe makes the durable consumer on the one stream that holds subject and
// delivers to handler in the background; see [Subscriber] for the contract.
//
// Messages are kept from redelivery while they wait here and while the handler
// runs. A failed message comes again after a delay that doubles from 50 ms up to
// a minute; the error is logged. A handler that panics has failed. When somebody
// deletes the consumer it is made again from the oldest stored message on, and
// that is logged. Subscriptions with one consumerName share its messages.
func (e *EmbeddedNATS) Subscribe(ctx context.Context, subject, consumerName string, handler func(msg *Message) error) error {
	if err := e.subscribe(ctx, subject, consumerName, handler); err != nil {
		return fmt.Errorf("subscribe %q to %q: %w", consumerName, subject, err)
	}
	return nil
}

func (e *EmbeddedNATS) subscribe(ctx context.Context, subj, name string, handler func(*Message) error) error {
	switch {
	case handler == nil:
		return errors.New("the handler is nil")
	case name == "" || strings.ContainsAny(name, " \t\r\n.*>/\\"):
		return fmt.Errorf("the consumer name %q is invalid; it must be without blanks and . * > / \\", name)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if err := subject.ValidFilter(subj); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	if err := e.use(); err != nil {
		return err
	}
	defer e.inUse.Done()
	st, err := e.streamOf(ctx, subj)
	if err != nil {
		return err
	}
	s := &subscription{
		q: e, stream: st.Config.Name, name: name, filter: subj, handler: handler,
		log:  e.log.With("consumer", name, "stream", st.Config.Name),
		wake: make(chan struct{}, 1), lost: make(chan error, 1),
	}
	if _, err := s.ensureConsumer(ctx); err != nil {
		return err
	}
	largest := max(e.nc.MaxPayload(), int64(st.Config.MaxMsgSize))
	s.pull, err = NewPull(e.nc, PullConfig{
		Stream: s.stream, Consumer: name, Batch: prefetch / 2, MaxBytes: 2 * largest, Deliver: s.deliver, Lost: s.report,
	})
	if err != nil {
		return err
	}
	if !e.background(func() { s.run(ctx) }) {
		return errors.Join(ErrClosed, s.pull.Stop())
	}
	return nil
}

// streamOf finds the one stream that the filter reaches. The server would take
// a filter outside of every subject of a stream, and then never deliver.
func (e *EmbeddedNATS) streamOf(ctx context.Context, filter string) (*jetstream.StreamInfo, error) {
	var found *jetstream.StreamInfo
	list := e.js.ListStreams(ctx, jetstream.WithStreamListSubject(filter))
	for i := range list.Info() {
		if found != nil {
			return nil, fmt.Errorf("%w: the streams %s and %s both hold subjects of it; choose a narrower one", ErrInvalidSubject, found.Config.Name, i.Config.Name)
		}
		found = i
	}
	switch {
	case list.Err() != nil:
		return nil, list.Err()
	case found == nil:
		return nil, fmt.Errorf("%w: make one, or choose a subject of %s", ErrNoStream, strings.Join(e.opts.Subjects, ", "))
	}
	return found, nil
}

// subscription is one call of Subscribe.
type subscription struct {
	q                    *EmbeddedNATS
	log                  *slog.Logger
	stream, name, filter string
	handler              func(*Message) error
	pull                 *Pull
	ackWait              time.Duration
	wake                 chan struct{} // something is held
	lost                 chan error    // why pulls fail
	unsettled            sync.Once

	mu   sync.Mutex
	held []*nats.Msg // the first is the one the handler has
}

// ensureConsumer makes the durable, or takes the one that is there as it is.
func (s *subscription) ensureConsumer(ctx context.Context) (made bool, err error) {
	c, err := s.q.js.Consumer(ctx, s.stream, s.name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		made = true
		c, err = s.q.js.CreateConsumer(ctx, s.stream, jetstream.ConsumerConfig{
			Durable: s.name, FilterSubject: s.filter, DeliverPolicy: jetstream.DeliverAllPolicy,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1, MaxAckPending: maxAckPending,
		})
	}
	if err != nil {
		return false, fmt.Errorf("make consumer on stream %s: %w", s.stream, err)
	}
	cfg := c.CachedInfo().Config
	switch {
	case cfg.FilterSubject != s.filter:
		// An update would move the durable without a word.
		return false, fmt.Errorf("the consumer exists with the subject %q; choose another name, or delete it", cfg.FilterSubject)
	case cfg.AckPolicy != jetstream.AckExplicitPolicy:
		return false, fmt.Errorf("the consumer exists with the ack policy %s; choose another name, or delete it", cfg.AckPolicy)
	}
	s.ackWait = cfg.AckWait
	return made, nil
}

// run delivers until ctx is done or the queue closes, and then gives back what
// the handler has not seen.
func (s *subscription) run(ctx context.Context) {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-s.q.hard:
			cancel()
		case <-done:
		}
	})
	wg.Go(func() { s.tend(base, done) })
	s.pull.Credit(prefetch)
	for s.await(ctx) {
		s.handle(base, s.head())
		s.release()
		s.pull.Credit(1)
	}
	if err := s.pull.Stop(); err != nil {
		s.log.Warn("stop pulling", "error", err)
	}
	for m := s.head(); m != nil; m = s.head() {
		if err := s.q.nak(base, m, minNakDelay); err != nil {
			s.log.Debug("give back a message", "error", err)
			break // the others come back when ack_wait is over
		}
		s.release()
	}
	close(done)
	wg.Wait()
}

// await returns true when a message is held and may be handled.
func (s *subscription) await(ctx context.Context) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.q.stopping:
			return false
		default:
		}
		if s.head() != nil {
			return true
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		case <-s.q.stopping:
		}
	}
}

func (s *subscription) deliver(m *nats.Msg) {
	s.mu.Lock()
	s.held = append(s.held, m)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) head() *nats.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		return nil
	}
	return s.held[0]
}

func (s *subscription) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[0] = nil
	s.held = s.held[1:]
}

func (s *subscription) report(err error) {
	select {
	case s.lost <- err:
	default:
	}
}

// handle calls the handler with one message and does what its answer asks for.
func (s *subscription) handle(base context.Context, m *nats.Msg) {
	info, err := ParseAck(m.Reply)
	if err != nil {
		s.log.Error("drop what is no delivery", "subject", m.Subject, "error", err)
		return
	}
	if m.Header != nil {
		base = context.WithValue(base, headersKey{}, m.Header)
		base = ContextWithTrace(base, headerValue(m.Header, traceparent), headerValue(m.Header, tracestate))
	}
	msg := s.q.message(base, m, info)
	err = s.call(msg)
	settled := msg.settled.Load()
	log := s.log.With("subject", m.Subject, "sequence", info.Sequence, "delivery", info.Deliveries)
	switch {
	case err != nil && settled:
		log.Error("handler settled the message and then failed", "error", err)
	case err != nil:
		d := nakDelay(info.Deliveries)
		log.Warn("handler failed; the message comes again", "error", err, "delay", d)
		if err := s.q.nak(base, m, d); err != nil {
			log.Warn("message comes again when ack_wait is over", "error", err)
		}
	case !settled:
		// Handlers that settle later, in groups, do this with every message.
		level := slog.LevelDebug
		s.unsettled.Do(func() { level = slog.LevelWarn })
		log.Log(base, level, "handler returned nil without settling the message; unless it does so later the message comes again", "ack_wait", s.ackWait)
	}
}

func (s *subscription) call(m *Message) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("handler panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return s.handler(m)
}
