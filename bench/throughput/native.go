package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

var quiet = slog.New(slog.DiscardHandler)

// native is the program that one writes: Consume, a synchronous publish with an
// id, DoubleAck, in some workers.
func native(workers int) engine {
	name := "native, " + strconv.Itoa(workers) + " workers"
	if workers == 1 {
		name = "native, 1 worker"
	}
	return engine{name, func(j *job) (func() error, error) {
		c, js, nc, err := nativeConsumer(j)
		if err != nil {
			return nil, err
		}
		work := make(chan jetstream.Msg, workers)
		var wg sync.WaitGroup
		var failed atomic.Int64
		ctx, cancel := context.WithCancel(j.ctx)
		for range workers {
			wg.Go(func() {
				for m := range work {
					meta, err := m.Metadata()
					if err != nil {
						failed.Add(1)
						continue
					}
					out := &nats.Msg{Subject: outSubject, Data: m.Data(), Header: nats.Header{"Nats-Msg-Id": {"job." + strconv.FormatUint(meta.Sequence.Stream, 10)}}}
					if _, err := js.PublishMsg(ctx, out); err != nil {
						failed.Add(1)
						continue
					}
					if err := m.DoubleAck(ctx); err != nil {
						failed.Add(1)
					}
				}
			})
		}
		consume, err := c.Consume(func(m jetstream.Msg) {
			select {
			case work <- m:
			case <-ctx.Done():
			}
		})
		if err != nil {
			cancel()
			return nil, err
		}
		return func() error {
			consume.Stop()
			<-consume.Closed()
			cancel()
			close(work)
			wg.Wait()
			nc.Close()
			return nil
		}, nil
	}}
}

func nativeConsumer(j *job) (jetstream.Consumer, jetstream.JetStream, *nats.Conn, error) {
	nc, err := j.e.Connect("native")
	if err != nil {
		return nil, nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, nil, err
	}
	c, err := js.CreateConsumer(j.ctx, j.in, jetstream.ConsumerConfig{
		Durable: "native", FilterSubject: inSubject, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxAckPending: 10_000,
	})
	return c, js, nc, err
}

// tuned is the fastest native program that still confirms every message: its
// publishes and acks are requests whose answers share one inbox, with 512
// messages under way, and no goroutine waits for any of them. Its garbage
// collector is as relaxed as that of mqrun.
func tuned() engine {
	return relaxed(engine{"native, tuned", func(j *job) (func() error, error) {
		_, _, nc, err := nativeConsumer(j)
		if err != nil {
			return nil, err
		}
		out, err := j.e.Connect("native out")
		if err != nil {
			return nil, err
		}
		t := &tunedJob{nc: out, inbox: nats.NewInbox(), acks: make([]string, 4096)}
		sub, err := out.Subscribe(t.inbox+".*.*", t.answer)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(sub.SetPendingLimits(-1, -1), out.Flush()); err != nil {
			return nil, err
		}
		for i := range 512 {
			t.free = append(t.free, i)
		}
		t.pull, err = mq.NewPull(nc, mq.PullConfig{Stream: j.in, Consumer: "native", Batch: 128, MaxBytes: 8 << 20, Deliver: t.deliver})
		if err != nil {
			return nil, err
		}
		t.pull.Credit(len(t.free))
		stop := make(chan struct{})
		go func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case now := <-tick.C:
					t.pull.Tick(now)
				case <-stop:
					return
				}
			}
		}()
		return func() error {
			close(stop)
			err := t.pull.Stop()
			nc.Close()
			out.Close()
			return err
		}, nil
	}})
}

type tunedJob struct {
	nc    *nats.Conn
	inbox string
	pull  *mq.Pull

	mu   sync.Mutex
	acks []string // by slot: where its message is acked
	free []int
}

func (t *tunedJob) deliver(m *nats.Msg) {
	t.mu.Lock()
	slot := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.acks[slot] = m.Reply
	t.mu.Unlock()
	info, err := mq.ParseAck(m.Reply)
	if err != nil {
		return
	}
	_ = t.nc.PublishMsg(&nats.Msg{
		Subject: outSubject, Reply: t.inbox + ".P." + strconv.Itoa(slot), Data: m.Data,
		Header: nats.Header{"Nats-Msg-Id": {"job." + strconv.FormatUint(info.Sequence, 10)}},
	})
}

func (t *tunedJob) answer(m *nats.Msg) {
	rest := m.Subject[len(t.inbox)+1:]
	slot, err := strconv.Atoi(rest[strings.IndexByte(rest, '.')+1:])
	if err != nil {
		return
	}
	if rest[0] == 'P' {
		if bytes.Contains(m.Data, []byte(`"error":`)) {
			return
		}
		t.mu.Lock()
		ack := t.acks[slot]
		t.mu.Unlock()
		_ = t.nc.PublishRequest(ack, t.inbox+".A."+strconv.Itoa(slot), []byte("+ACK"))
		return
	}
	t.mu.Lock()
	t.free = append(t.free, slot)
	t.mu.Unlock()
	t.pull.Credit(1)
}
