package pipeline

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// errMadeAnew ends a tenure: its checkpoint is of another stream.
var errMadeAnew = errors.New("it was made anew")

// consume makes a consumer behind the last message admitted. It lives only as
// long as somebody pulls from it.
func (p *tenure) consume(ctx context.Context) error {
	p.mu.Lock()
	start := p.top + 1
	p.mu.Unlock()
	st, err := p.broker.ask.Stream(ctx, p.in.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		p.broker.missing()
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", p.in.stream, err)
	}
	if made := st.CachedInfo().Created; !made.Equal(p.in.created) {
		return fmt.Errorf("stream %s: %w at %s", p.in.stream, errMadeAnew, made.UTC().Format(time.RFC3339))
	}
	c, err := p.broker.ask.CreateConsumer(ctx, p.in.stream, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: start,
		FilterSubjects: p.in.filters, InactiveThreshold: time.Minute, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		return fmt.Errorf("consumer on stream %s: %w", p.in.stream, err)
	}
	var pull *mq.Pull
	pull, err = mq.NewPull(p.broker.in, mq.PullConfig{
		Stream: p.in.stream, Consumer: c.CachedInfo().Name,
		Batch: max(1, p.window/4), MaxBytes: max(maxInFlightBytes/4, 2*p.in.maxMsg),
		Deliver: func(m *nats.Msg) { p.deliver(pull, m) },
		Lost:    func(err error) { p.restart(pull, err) },
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.pull, p.consumer, p.expect = pull, c.CachedInfo().Name, 1
	p.mu.Unlock()
	return nil
}

// deliver admits a message to the end of the line.
func (p *tenure) deliver(pull *mq.Pull, m *nats.Msg) {
	info, err := mq.ParseAck(m.Reply)
	if err != nil {
		p.log.Error("delivery ignored", "error", err)
		return
	}
	p.mu.Lock()
	if p.pull != pull || p.releasing || p.restarting {
		p.mu.Unlock()
		return
	}
	if info.ConsumerSequence != p.expect {
		p.mu.Unlock()
		p.restart(pull, fmt.Errorf("delivery %d came where %d was expected", info.ConsumerSequence, p.expect))
		return
	}
	e := p.entries.Get().(*entry)
	e.src, e.ident, e.msg, e.info, e.subject, e.bytes = p.src, p.src.ident, m, info, p.src.original(m), int64(len(m.Data))
	p.expect++
	p.top = info.Sequence
	p.line = append(p.line, e)
	p.inFlight++
	p.bytes += e.bytes
	p.throttle()
	p.mu.Unlock()
	p.queue <- e
}

// throttle holds pulls back while too many bytes are in flight. p.mu is held.
func (p *tenure) throttle() {
	p.pull.Pause(p.bytes > maxInFlightBytes/2 || p.lost != "" || p.over != nil || p.shut())
}

// restart makes a new consumer where a delivery was lost or the old one is
// gone: an AckNone consumer gives nothing twice.
func (p *tenure) restart(pull *mq.Pull, why error) {
	p.mu.Lock()
	if p.pull != pull || p.restarting || p.draining {
		p.mu.Unlock()
		return
	}
	p.restarting = true
	p.mu.Unlock()
	p.log.Warn("consumer made again", "stream", p.in.stream, "reason", why)
	p.workers.Go(func() {
		_ = pull.Stop()
		for wait := refusedFirst; ; wait = min(2*wait, refusedMost) {
			ctx, cancel := p.broker.link.within(p.work, flushWait)
			err := p.consume(ctx)
			cancel()
			if err == nil {
				break
			}
			if errors.Is(err, errMadeAnew) {
				p.fail(err)
				return
			}
			p.mu.Lock()
			known := p.lost == err.Error()
			p.lost = err.Error()
			p.mu.Unlock()
			if !known {
				p.log.Error("input cannot go on, trying again", "stream", p.in.stream, "error", err)
			}
			select {
			case <-time.After(wait):
			case <-p.quit:
				return
			}
		}
		p.mu.Lock()
		p.restarting, p.lost = false, ""
		next, n := p.pull, p.window-p.inFlight
		p.throttle()
		p.mu.Unlock()
		next.Credit(n)
	})
}

// revive reads parked copies and hands them to the workers.
func (p *tenure) revive(due []parked) {
	for _, w := range due {
		ctx, cancel := p.broker.link.within(p.work, commitWait)
		m, err := unpark(ctx, p.broker.ask, p.out, p.parkAt, w.sequence)
		cancel()
		if err != nil {
			p.log.Warn("parked message not read, tried again", "sequence", w.sequence, "error", err)
			p.mu.Lock()
			p.inFlight--
			p.revived--
			heap.Push(&p.waiting, parked{sequence: w.sequence, due: p.now().Add(refusedFirst)})
			p.mu.Unlock()
			continue
		}
		attempts, _ := strconv.Atoi(m.Header.Get(hdrAttempts))
		stored, _ := strconv.ParseInt(m.Header.Get(hdrTime), 10, 64)
		e := &entry{parked: true, failed: attempts, slot: slot{
			src: p.src, ident: p.src.ident, subject: m.Header.Get(hdrSubject), bytes: int64(len(m.Data)),
			msg:  &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data},
			info: mq.AckInfo{Stream: p.in.stream, Sequence: w.sequence, Time: time.Unix(0, stored), Deliveries: uint64(attempts + 1)},
		}}
		p.mu.Lock()
		p.bytes += e.bytes
		p.mu.Unlock()
		select {
		case p.queue <- e:
		case <-p.quit:
			return
		}
	}
}
