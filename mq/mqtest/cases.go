package mqtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mqrun/mqrun/mq"
)

func roundTrip(b *bench) {
	got := b.collect("ingest.a", "c")
	before := time.Now().Add(-time.Minute)
	for _, d := range []string{"", "x", "\x00\xff\r\n", string(make([]byte, 500_000))} {
		b.publish("ingest.a", d)
		m := next(b, got)
		if string(m.Data) != d || m.Subject != "ingest.a" {
			b.Errorf("sent %d bytes, got %d on %q", len(d), len(m.Data), m.Subject)
		}
		if m.Timestamp.Before(before) || m.Timestamp.After(time.Now().Add(time.Minute)) {
			b.Errorf("timestamp %v is not when it was stored", m.Timestamp)
		}
		if m.Ctx == nil {
			b.Error("the message has no context")
		}
	}
}

func headersAppended(b *bench) {
	got := b.collect("ingest.a", "c")
	b.publish("ingest.a", "x", mq.WithHeader("X-Test", "1"), mq.WithHeader("X-Test", "2"), mq.WithHeader("x-other", "é"))
	h := mq.HeadersFromContext(next(b, got).Ctx)
	if v := h["X-Test"]; len(v) != 2 || v[0] != "1" || v[1] != "2" {
		b.Errorf("X-Test is %q", v)
	}
	if v := h["x-other"]; len(v) != 1 || v[0] != "é" {
		b.Errorf("x-other is %q", v)
	}
}

func traceGoesOn(b *bench) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	end := b.collect("ingest.end", "end")
	b.subscribe(b.ctx, "ingest.start", "start", func(m *mq.Message) error {
		if err := b.pub.Publish(m.Ctx, "ingest.end", m.Data); err != nil {
			return err
		}
		return m.DoubleAck(m.Ctx)
	})
	if err := b.pub.Publish(mq.ContextWithTrace(b.ctx, parent, "k=v"), "ingest.start", nil); err != nil {
		b.Fatal(err)
	}
	if p, s := mq.TraceFromContext(next(b, end).Ctx); p != parent || s != "k=v" {
		b.Errorf("the trace is %q %q", p, s)
	}
}

func inOrder(b *bench) {
	got := b.collect("ingest.a", "c")
	for i := range 200 {
		b.publish("ingest.a", fmt.Sprint(i))
	}
	for i := range 200 {
		b.want(got, fmt.Sprint(i))
	}
}

func wildcard(b *bench) {
	one := b.collect("ingest.*.eu", "one")
	all := b.collect("ingest.>", "all")
	b.publish("ingest.a.us", "1")
	b.publish("ingest.a.eu", "2")
	b.publish("ingest.b.c.eu", "3")
	b.publish("ingest.b.eu", "4")
	b.want(one, "2", "4")
	b.want(all, "1", "2", "3", "4")
	none(b, one, "it matched too much")
}

func independent(b *bench) {
	one, two := b.collect("ingest.a", "one"), b.collect("ingest.a", "two")
	b.publish("ingest.a", "1")
	b.publish("ingest.a", "2")
	b.want(one, "1", "2")
	b.want(two, "1", "2")
}

func nilDoesNotAck(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	seen := make(chan *mq.Message, 10)
	b.subscribe(ctx, "ingest.a", "c", func(m *mq.Message) error {
		seen <- m
		return nil
	})
	b.publish("ingest.a", "x")
	m := next(b, seen)
	none(b, seen, "it came again at once")
	if err := m.Nak(); err != nil { // proof that it was still open
		b.Fatal(err)
	}
	if m := next(b, seen); string(m.Data) != "x" {
		b.Fatalf("got %q", m.Data)
	} else if err := m.DoubleAck(b.ctx); err != nil {
		b.Fatal(err)
	}
}

func errorNaksOnce(b *bench) {
	seen := make(chan string, 100)
	var n atomic.Int32
	b.subscribe(b.ctx, "ingest.a", "c", func(m *mq.Message) error {
		seen <- string(m.Data)
		if n.Add(1) == 1 {
			return errors.New("the first time")
		}
		return m.DoubleAck(m.Ctx)
	})
	b.publish("ingest.a", "x")
	for range 2 {
		if d := next(b, seen); d != "x" {
			b.Fatalf("got %q", d)
		}
	}
	none(b, seen, "a second nak brought it a third time")
}

func failuresSlowDown(b *bench) {
	seen := make(chan time.Time, 100)
	b.subscribe(b.ctx, "ingest.a", "c", func(m *mq.Message) error {
		seen <- time.Now()
		return errors.New("always")
	})
	b.publish("ingest.a", "x")
	last := next(b, seen)
	for range 3 {
		at := next(b, seen)
		if d := at.Sub(last); d < 20*time.Millisecond { // the least that is promised
			b.Errorf("it came again after %v", d)
		}
		last = at
	}
}

func nakComesAgain(b *bench) {
	seen := make(chan string, 100)
	var n atomic.Int32
	b.subscribe(b.ctx, "ingest.a", "c", func(m *mq.Message) error {
		seen <- string(m.Data)
		if n.Add(1) < 3 {
			return m.Nak()
		}
		return m.Ack()
	})
	b.publish("ingest.a", "x")
	for range 3 {
		next(b, seen)
	}
	none(b, seen, "it came again after the ack")
}

func doubleAckEnds(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	got := make(chan string, 10)
	b.subscribe(ctx, "ingest.a", "c", func(m *mq.Message) error {
		if err := m.DoubleAck(m.Ctx); err != nil {
			return err
		}
		got <- string(m.Data)
		return nil
	})
	b.publish("ingest.a", "1")
	next(b, got)
	cancel()
	again := b.collect("ingest.a", "c")
	b.publish("ingest.a", "2")
	b.want(again, "2")
}

func panicFails(b *bench) {
	seen := make(chan string, 10)
	var n atomic.Int32
	b.subscribe(b.ctx, "ingest.a", "c", func(m *mq.Message) error {
		seen <- string(m.Data)
		if n.Add(1) == 1 {
			panic("handler is broken")
		}
		return m.DoubleAck(m.Ctx)
	})
	b.publish("ingest.a", "x")
	next(b, seen)
	next(b, seen)
}

func cancelKeepsDurable(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	var cancelled atomic.Bool
	var late atomic.Int32
	first := make(chan string, 1000)
	b.subscribe(ctx, "ingest.a", "c", func(m *mq.Message) error {
		if cancelled.Load() {
			late.Add(1)
		}
		if err := m.DoubleAck(m.Ctx); err != nil {
			return err
		}
		first <- string(m.Data)
		if string(m.Data) == "9" {
			cancel()
			cancelled.Store(true)
		}
		return nil
	})
	for i := range 100 {
		b.publish("ingest.a", fmt.Sprint(i))
	}
	for i := range 10 {
		if d := next(b, first); d != fmt.Sprint(i) {
			b.Fatalf("got %q; want %d", d, i)
		}
	}
	none(b, first, "a handler ran after the cancel")
	if n := late.Load(); n > 0 {
		b.Errorf("%d handlers began after the cancel", n)
	}
	rest := b.collect("ingest.a", "c")
	left := map[string]bool{}
	for i := 10; i < 100; i++ {
		left[fmt.Sprint(i)] = true
	}
	for len(left) > 0 { // what was held by the first comes back in any order
		d := string(next(b, rest).Data)
		if !left[d] {
			b.Fatalf("%q came twice", d)
		}
		delete(left, d)
	}
}

func settleAfterCancel(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	result := make(chan error, 1)
	b.subscribe(ctx, "ingest.a", "c", func(m *mq.Message) error {
		cancel()
		result <- m.DoubleAck(m.Ctx)
		return nil
	})
	b.publish("ingest.a", "1")
	if err := next(b, result); err != nil {
		b.Errorf("double ack: %v", err)
	}
	b.publish("ingest.a", "2")
	b.want(b.collect("ingest.a", "c"), "2")
}

func deliverAll(b *bench) {
	b.publish("ingest.a", "1")
	b.publish("ingest.a", "2")
	b.want(b.collect("ingest.a", "c"), "1", "2")
}

func refuseWildcard(b *bench) {
	for _, s := range []string{"ingest.*", "ingest.>", ""} {
		if err := b.pub.Publish(b.ctx, s, nil); err == nil {
			b.Errorf("a message for %q was taken", s)
		}
	}
}

func closeTwice(b *bench) {
	b.collect("ingest.a", "c")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(b.close)
	}
	wg.Wait()
	b.close()
	if err := b.pub.Publish(b.ctx, "ingest.a", nil); err == nil {
		b.Error("a closed queue took a message")
	}
	if err := b.sub.Subscribe(b.ctx, "ingest.a", "d", func(*mq.Message) error { return nil }); err == nil {
		b.Error("a closed queue took a subscription")
	}
}
