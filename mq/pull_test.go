package mq

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pullRig is a server with messages in MQRUN and a durable "c" on them.
func pullRig(t *testing.T, sizes ...int) *EmbeddedNATS {
	t.Helper()
	e, err := Open(t.Context(), Options{StoreDir: t.TempDir(), MaxBytes: 1 << 30, SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for _, n := range sizes {
		if _, err := e.js.PublishAsync("ingest.a", []byte(strings.Repeat("x", n))); err != nil {
			t.Fatal(err)
		}
	}
	<-e.js.PublishAsyncComplete()
	if _, err := e.js.CreateConsumer(t.Context(), StreamName(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 100_000}); err != nil {
		t.Fatal(err)
	}
	return e
}

// ticks drives the pull's timers until the test ends.
func ticks(t *testing.T, p *Pull) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				p.Tick(now)
			case <-stop:
				return
			}
		}
	}()
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal(what + " did not come within 20s")
	}
}

func TestPullDeliversAllWithinCredits(t *testing.T) {
	const n, credits = 5000, 100
	e := pullRig(t, make([]int, n)...)
	got := make(chan *nats.Msg, n)
	p, err := NewPull(e.nc, PullConfig{Stream: StreamName(), Consumer: "c", Batch: credits / 4, MaxBytes: 1 << 22, Deliver: func(m *nats.Msg) { got <- m }})
	if err != nil {
		t.Fatal(err)
	}
	ticks(t, p)
	p.Credit(credits)
	deadline := time.After(30 * time.Second)
	for i := range n {
		select {
		case m := <-got:
			info, err := ParseAck(m.Reply)
			if err != nil || info.Sequence != uint64(i+1) {
				t.Fatalf("message %d: %+v %v", i, info, err)
			}
			if len(got) > credits {
				t.Fatalf("%d messages wait; there were %d credits", len(got), credits)
			}
			p.Credit(1)
		case <-deadline:
			t.Fatalf("stalled after %d of %d", i, n)
		}
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestORD06_LargeMessageDoesNotStall(t *testing.T) {
	e := pullRig(t, 10, 500_000, 10)
	sizes := make(chan int, 3)
	p, err := NewPull(e.nc, PullConfig{Stream: StreamName(), Consumer: "c", Batch: 10, MaxBytes: 2 << 20, Deliver: func(m *nats.Msg) { sizes <- len(m.Data) }})
	if err != nil {
		t.Fatal(err)
	}
	ticks(t, p)
	p.Credit(1)
	for _, want := range []int{10, 500_000, 10} {
		select {
		case got := <-sizes:
			if got != want {
				t.Errorf("size %d; want %d", got, want)
			}
			p.Credit(1)
		case <-time.After(20 * time.Second):
			t.Fatalf("the message of %d bytes did not come", want)
		}
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestPullGoesOnAfterReconnect(t *testing.T) {
	e := pullRig(t)
	nc, err := e.Connect("pull")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// What is on its way when the connection ends comes again after AckWait.
	if _, err := e.js.UpdateConsumer(t.Context(), StreamName(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 100_000, AckWait: time.Second}); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 100)
	p, err := NewPull(nc, PullConfig{Stream: StreamName(), Consumer: "c", Batch: 10, MaxBytes: 2 << 20, Deliver: func(m *nats.Msg) {
		_ = m.Ack() // lost with a connection it comes again
		got <- string(m.Data)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ticks(t, p)
	p.Credit(10)
	for i := range 3 {
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(i)
		if err := e.Publish(t.Context(), "ingest.a", []byte(want)); err != nil {
			t.Fatal(err)
		}
		for end := time.After(20 * time.Second); ; {
			select {
			case data := <-got:
				p.Credit(1)
				if data == want {
					end = nil
				}
			case <-end:
				t.Fatalf("message %s did not come within 20s of the reconnect", want)
			}
			if end == nil {
				break
			}
		}
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestPullTellsThatTheConsumerIsGone(t *testing.T) {
	e := pullRig(t)
	lost := make(chan error, 100)
	p, err := NewPull(e.nc, PullConfig{Stream: StreamName(), Consumer: "c", Batch: 10, MaxBytes: 2 << 20, Deliver: func(*nats.Msg) {}, Lost: func(err error) { lost <- err }})
	if err != nil {
		t.Fatal(err)
	}
	ticks(t, p)
	p.Credit(10)
	if err := e.js.DeleteConsumer(t.Context(), StreamName(), "c"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-lost:
		if !errors.Is(err, ErrConsumerLost) {
			t.Errorf("%v; want ErrConsumerLost", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody was told")
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestPullPauseHoldsBack(t *testing.T) {
	e := pullRig(t)
	got := make(chan struct{}, 10)
	p, err := NewPull(e.nc, PullConfig{Stream: StreamName(), Consumer: "c", Batch: 10, MaxBytes: 2 << 20, Deliver: func(*nats.Msg) { got <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	p.Pause(true)
	p.Credit(10)
	if err := e.Publish(t.Context(), "ingest.a", nil); err != nil {
		t.Fatal(err)
	}
	if err := e.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 0 {
		t.Error("a message came through a paused pull")
	}
	p.Pause(false)
	await(t, "the message after the pause", got)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}
