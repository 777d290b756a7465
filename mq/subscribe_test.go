package mq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

func nothing(*mq.Message) error { return nil }

func publish(t *testing.T, q *mq.EmbeddedNATS, data ...string) {
	t.Helper()
	for _, d := range data {
		if err := q.Publish(deadline(t), "ingest.a", []byte(d)); err != nil {
			t.Fatal(err)
		}
	}
}

func subscribe(t *testing.T, q *mq.EmbeddedNATS, ctx context.Context, h func(*mq.Message) error) {
	t.Helper()
	if err := q.Subscribe(ctx, "ingest.>", "c", h); err != nil {
		t.Fatal(err)
	}
}

func TestSubscribeRefuses(t *testing.T) {
	q := open(t, mq.Options{Subjects: []string{"ingest.>", "in2.*"}})
	ctx := deadline(t)
	if err := q.Subscribe(ctx, "ingest.a", "taken", nothing); err != nil {
		t.Fatal(err)
	}
	consumerOn(t, q.JetStream(), mq.StreamName(), "plain", "ingest.a")
	if _, err := q.JetStream().CreateConsumer(ctx, mq.StreamName(), jetstream.ConsumerConfig{Durable: "none", FilterSubject: "ingest.a", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for name, tt := range map[string]struct {
		ctx               context.Context
		subject, consumer string
		handler           func(*mq.Message) error
		want              string
	}{
		"no handler":           {ctx, "ingest.a", "c", nil, "handler is nil"},
		"no name":              {ctx, "ingest.a", "", nothing, "consumer name"},
		"dotted name":          {ctx, "ingest.a", "a.b", nothing, "consumer name"},
		"bad filter":           {ctx, "ingest.>.a", "c", nothing, "last token"},
		"no stream":            {ctx, "nobody.>", "c", nothing, "no stream holds"},
		"two streams":          {ctx, ">", "c", nothing, "MQRUN_DLQ"},
		"other filter":         {ctx, "ingest.b", "taken", nothing, `"ingest.a"`},
		"other ack policy":     {ctx, "ingest.a", "none", nothing, "ack policy"},
		"cancelled":            {gone, "ingest.a", "c", nothing, "canceled"},
		"made by hand is fine": {ctx, "ingest.a", "plain", nothing, ""},
		"reaching one stream":  {ctx, "*.a", "wide", nothing, "MQRUN_DLQ"},
		"within":               {ctx, "in2.*", "in2", nothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := q.Subscribe(tt.ctx, tt.subject, tt.consumer, tt.handler)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
		})
	}
}

func TestSubscribeMakesTheDurableAsPromised(t *testing.T) {
	q := open(t, mq.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	subscribe(t, q, ctx, nothing)
	cancel()
	c, err := q.JetStream().Consumer(deadline(t), mq.StreamName(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if g := c.CachedInfo().Config; g.Durable != "c" || g.AckWait != 30*time.Second || g.DeliverPolicy != jetstream.DeliverAllPolicy || g.MaxDeliver != -1 ||
		g.AckPolicy != jetstream.AckExplicitPolicy || len(g.BackOff) > 0 || g.MaxAckPending != 100_000 || g.InactiveThreshold != 0 {
		t.Errorf("got %+v", g)
	}
}

func TestUnsettledNilReturnIsLogged(t *testing.T) {
	var l logs
	q := open(t, mq.Options{Logger: l.logger()})
	done := make(chan bool)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		switch string(m.Data) {
		case "settled":
			return m.DoubleAck(m.Ctx)
		case "last":
			close(done)
		}
		return nil
	})
	publish(t, q, "settled", "forgotten", "last")
	await(t, done, "last message")
	if got := l.String(); !strings.Contains(got, "without settling") || !strings.Contains(got, "sequence=2") || strings.Contains(got, "sequence=1 ") {
		t.Errorf("log: %s", got)
	}
}

func TestFailuresAreLoggedAndDelayed(t *testing.T) {
	var l logs
	q := open(t, mq.Options{Logger: l.logger()})
	n := make(chan bool, 10)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		n <- true
		if len(n) == 1 {
			panic("ouch")
		}
		return errors.New("kaput")
	})
	publish(t, q, "x")
	until(t, "three deliveries", func() bool { return len(n) >= 3 })
	until(t, "log line", func() bool { return strings.Contains(l.String(), "delivery=3") })
	for _, want := range []string{"handler panicked: ouch", "subscribe_test.go", "error=kaput", "delay=50ms", "delay=100ms", "delay=200ms"} {
		if !strings.Contains(l.String(), want) {
			t.Errorf("log lacks %q: %s", want, l.String())
		}
	}
}

func TestErrorReturnNaksExactlyOnceAndConfirmed(t *testing.T) {
	q := open(t, mq.Options{})
	spy, err := q.Connect("spy")
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan *nats.Msg, 100)
	if _, err := spy.ChanSubscribe("$JS.ACK.>", answers); err != nil {
		t.Fatal(err)
	}
	if err := spy.FlushWithContext(deadline(t)); err != nil {
		t.Fatal(err)
	}
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		switch string(m.Data) {
		case "error":
			return errors.New("kaput")
		case "nak":
			return m.Nak()
		}
		return m.DoubleAck(m.Ctx)
	})
	publish(t, q, "error", "nak", "end")
	type delivery struct{ sequence, attempt uint64 }
	seen := map[delivery]*nats.Msg{}
	for seen[delivery{1, 2}] == nil || seen[delivery{2, 1}] == nil || seen[delivery{3, 1}] == nil {
		m := await(t, answers, "answer")
		info, err := mq.ParseAck(m.Subject)
		if err != nil {
			t.Fatal(err)
		}
		d := delivery{info.Sequence, info.Deliveries}
		if seen[d] != nil {
			t.Errorf("delivery %v has two answers, %q and %q", d, seen[d].Data, m.Data)
		}
		seen[d] = m
	}
	for _, tt := range []struct {
		delivery
		body      string
		confirmed bool
	}{
		{delivery{1, 1}, `-NAK {"delay":50000000}`, true},
		{delivery{1, 2}, `-NAK {"delay":100000000}`, true},
		{delivery{2, 1}, `-NAK {"delay":50000000}`, false},
		{delivery{3, 1}, "+ACK", true},
	} {
		if m := seen[tt.delivery]; m == nil || string(m.Data) != tt.body || (m.Reply != "") != tt.confirmed {
			t.Errorf("delivery %v: got %+v; want %q, confirmed %v", tt.delivery, m, tt.body, tt.confirmed)
		}
	}
}

func TestErrorAfterDoubleAckBringsNothingBack(t *testing.T) {
	var l logs
	q := open(t, mq.Options{Logger: l.logger()})
	var n atomic.Int32
	end := make(chan bool)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		if string(m.Data) == "end" {
			err := m.DoubleAck(m.Ctx)
			close(end)
			return err
		}
		n.Add(1)
		return errors.Join(m.DoubleAck(m.Ctx), errors.New("and yet"))
	})
	publish(t, q, "x", "end")
	await(t, end, "end")
	if got := info(t, q); got.NumAckPending != 0 || n.Load() != 1 {
		t.Errorf("handled %d times, %d pending", n.Load(), got.NumAckPending)
	}
	if !strings.Contains(l.String(), "settled the message and then failed") {
		t.Error("it is not logged")
	}
}

func info(t *testing.T, q *mq.EmbeddedNATS) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := q.JetStream().Consumer(deadline(t), mq.StreamName(), "c")
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo()
}

func TestDeletedConsumerIsReportedAndMadeAgain(t *testing.T) {
	var l logs
	q := open(t, mq.Options{Logger: l.logger()})
	got := make(chan string, 100)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		err := m.DoubleAck(m.Ctx)
		got <- string(m.Data)
		return err
	})
	publish(t, q, "1")
	await(t, got, "message")
	if err := q.JetStream().DeleteConsumer(deadline(t), mq.StreamName(), "c"); err != nil {
		t.Fatal(err)
	}
	publish(t, q, "2")
	for await(t, got, "message after the deletion") != "2" {
	}
	if !strings.Contains(l.String(), "the consumer was deleted") {
		t.Errorf("log: %s", l.String())
	}
}

func TestWaitingMessagesAreKeptAlive(t *testing.T) {
	q := open(t, mq.Options{})
	const wait = time.Second // for the whole queue of messages it is too short
	if _, err := q.JetStream().CreateConsumer(deadline(t), mq.StreamName(), jetstream.ConsumerConfig{
		Durable: "c", FilterSubject: "ingest.>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: wait,
	}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 8 {
		want = append(want, fmt.Sprint(i))
	}
	publish(t, q, want...)
	got := make(chan string, 100)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		if string(m.Data) == "0" {
			<-time.After(2 * wait) // a slow handler
		}
		got <- string(m.Data)
		return m.DoubleAck(m.Ctx)
	})
	for _, w := range want {
		if g := await(t, got, "message"); g != w {
			t.Fatalf("got %q; want %q", g, w)
		}
	}
	if i := info(t, q); i.Delivered.Consumer != uint64(len(want)) {
		t.Errorf("%d deliveries for %d messages", i.Delivered.Consumer, len(want))
	}
}

func TestCancelGivesBackWhatWaits(t *testing.T) {
	q := open(t, mq.Options{})
	publish(t, q, "0", "1", "2", "3", "4")
	ctx, cancel := context.WithCancel(t.Context())
	begun, finish := make(chan bool, 10), make(chan bool)
	subscribe(t, q, ctx, func(m *mq.Message) error {
		begun <- true
		<-finish
		return m.DoubleAck(m.Ctx)
	})
	await(t, begun, "handler")
	until(t, "prefetch", func() bool { return info(t, q).NumAckPending == 5 })
	cancel()
	close(finish)
	left := map[string]bool{"1": true, "2": true, "3": true, "4": true}
	got := make(chan string, 10)
	subscribe(t, q, t.Context(), func(m *mq.Message) error { // long before ack_wait
		got <- string(m.Data)
		return m.DoubleAck(m.Ctx)
	})
	for len(left) > 0 {
		d := await(t, got, "message that waited")
		if !left[d] {
			t.Fatalf("%q came again", d)
		}
		delete(left, d)
	}
	if len(begun) > 0 {
		t.Errorf("%d handlers began after the cancel", len(begun))
	}
}

func TestCloseLetsHandlersFinish(t *testing.T) {
	dir := t.TempDir()
	q := open(t, mq.Options{StoreDir: dir})
	publish(t, q, "1", "2", "3")
	begun, finish := make(chan bool, 10), make(chan bool)
	result := make(chan error, 10)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		begun <- true
		<-finish
		err := errors.Join(q.Publish(m.Ctx, "dlq.a", m.Data), m.DoubleAck(m.Ctx))
		result <- err
		return err
	})
	await(t, begun, "handler")
	closed := make(chan error)
	go func() { closed <- q.Close() }()
	until(t, "the end of subscriptions", func() bool { _, err := q.Connect("probe"); return errors.Is(err, mq.ErrClosed) })
	select {
	case <-closed:
		t.Fatal("it closed under a running handler")
	default:
	}
	close(finish)
	if err := await(t, result, "result"); err != nil {
		t.Error("the handler could not finish its work:", err)
	}
	if err := await(t, closed, "end of Close"); err != nil {
		t.Error(err)
	}
	if len(begun) > 0 {
		t.Errorf("%d handlers began after Close", len(begun))
	}

	q = open(t, mq.Options{StoreDir: dir})
	left := map[string]bool{"2": true, "3": true} // 1 is acked for good
	got := make(chan string, 10)
	subscribe(t, q, t.Context(), func(m *mq.Message) error {
		got <- string(m.Data)
		return m.DoubleAck(m.Ctx)
	})
	for len(left) > 0 {
		d := await(t, got, "message")
		if !left[d] {
			t.Fatalf("%q came again", d)
		}
		delete(left, d)
	}
}

func TestNewMessage(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, 1)
	now := time.Now()
	var calls []string
	note := func(s string) func() error {
		return func() error { calls = append(calls, s); return nil }
	}
	m := mq.NewMessage(ctx, "s", []byte("d"), now, func(c context.Context) error {
		if c.Value(key{}) != 1 {
			t.Error("DoubleAck got another context")
		}
		return note("double")()
	}, note("ack"), note("nak"))
	if m.Ctx != ctx || m.Subject != "s" || string(m.Data) != "d" || !m.Timestamp.Equal(now) {
		t.Errorf("got %+v", m)
	}
	if err := errors.Join(m.Ack(), m.DoubleAck(ctx), m.Nak()); err != nil || strings.Join(calls, " ") != "ack double nak" {
		t.Errorf("called %q: %v", calls, err)
	}
	broken := errors.New("broken")
	m = mq.NewMessage(ctx, "s", nil, now, func(context.Context) error { return broken }, func() error { return broken }, func() error { return broken })
	for _, err := range []error{m.Ack(), m.DoubleAck(ctx), m.Nak()} {
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	m = mq.NewMessage(ctx, "s", nil, now, nil, nil, nil)
	if err := errors.Join(m.Ack(), m.DoubleAck(ctx), m.Nak()); err != nil {
		t.Error(err)
	}
}
