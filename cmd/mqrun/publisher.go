package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// message is one message to publish, or why it could not be read.
type message struct {
	id    string
	place string // FILE:LINE, "" when it is not one of many
	data  []byte
	size  int // of the data as it was; larger than data when it was cut
	err   error
}

// where begins an error text about the message.
func (m message) where() string {
	if m.place == "" {
		return ""
	}
	return m.place + ": "
}

const (
	maxUnconfirmed      = 256
	maxUnconfirmedBytes = 8 << 20
	noAnswer            = 3 * time.Second // after which a message is sent again
	pauseBetween        = 100 * time.Millisecond
)

// publisher keeps a bounded number of messages on their way and waits for the
// server's word on each. It belongs to one goroutine.
type publisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	header  nats.Header
	limit   int // bytes of one message with its headers
	timeout time.Duration
	result  published

	waiting []*unconfirmed
	bytes   int
	there   []stored // the first ones that the stream says it has
}

// stored is a message whose id the stream has.
type stored struct {
	message
	sequence uint64
}

// maxCompared is how many of them are compared with what is stored.
const maxCompared = 100

type unconfirmed struct {
	message
	future jetstream.PubAckFuture // nil: to be sent again
	since  time.Time
	tries  int
}

// newPublisher asks which stream holds the subject, and what it takes.
func newPublisher(ctx context.Context, nc *nats.Conn, subject string, header nats.Header, timeout time.Duration) (*publisher, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(noAnswer), jetstream.WithPublishAsyncMaxPending(2*maxUnconfirmed))
	if err != nil {
		return nil, fmt.Errorf("publish to %q: %w", subject, err)
	}
	name, err := js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("publish to %q: no stream holds the subject; make a pipeline read it, or publish below ingest", subject)
	}
	if err != nil {
		return nil, fmt.Errorf("publish to %q: find its stream: %w", subject, err)
	}
	if name == mq.DLQStreamName() {
		return nil, fmt.Errorf("publish to %q: it is a subject of dead letters, which only mqrun writes; publish to what the pipeline reads, or replay one with mqrun dlq replay", subject)
	}
	st, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("publish to %q: %w", subject, err)
	}
	p := &publisher{nc: nc, js: js, header: header, limit: int(nc.MaxPayload()), timeout: timeout}
	if most := int(st.CachedInfo().Config.MaxMsgSize); most > 0 {
		p.limit = min(p.limit, most)
	}
	p.result = published{Subject: subject, Stream: name}
	return p, nil
}

// publish sends what comes from messages until it is closed and everything is
// confirmed, or until one fails; then it still waits for those on their way.
func (p *publisher) publish(ctx context.Context, messages <-chan message) error {
	var failed error
	for messages != nil || len(p.waiting) > 0 {
		in := messages
		if len(p.waiting) >= maxUnconfirmed || p.bytes >= maxUnconfirmedBytes {
			in = nil
		}
		var ok <-chan *jetstream.PubAck
		var bad <-chan error
		var again <-chan time.Time
		if len(p.waiting) > 0 {
			if f := p.waiting[0].future; f != nil {
				ok, bad = f.Ok(), f.Err()
			} else {
				again = time.After(pauseBetween)
			}
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, open := <-in:
			if !open {
				messages = nil
				break
			}
			err = p.take(m)
		case ack := <-ok:
			p.confirmed(ack)
		case err = <-bad:
			err = p.unanswered(err)
		case <-again:
			err = p.repeat()
		}
		if err != nil {
			if failed == nil {
				failed = err
			}
			messages = nil
		}
	}
	return failed
}

// take checks a message and sends it.
func (p *publisher) take(m message) error {
	switch n := m.size + p.headerSize(m.id); {
	case m.err != nil:
		return fmt.Errorf("%sread message: %w", m.where(), m.err)
	case n > p.limit:
		return fmt.Errorf("%smessage of %d bytes with its headers is too large: stream %s takes %d (server.max_payload less what a dead letter needs)", m.where(), n, p.result.Stream, p.limit)
	}
	u := &unconfirmed{message: m, since: time.Now()}
	p.send(u)
	p.waiting = append(p.waiting, u)
	p.bytes += len(m.data)
	return nil
}

func (p *publisher) headerSize(id string) int {
	n := len("NATS/1.0\r\n\r\n") + len(nats.MsgIdHdr) + len(id) + 4
	for name, values := range p.header {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return n
}

// send leaves the future nil when the connection is away.
func (p *publisher) send(u *unconfirmed) {
	m := nats.NewMsg(p.result.Subject)
	maps.Copy(m.Header, p.header)
	m.Header.Set(nats.MsgIdHdr, u.id)
	m.Data = u.data
	u.tries++
	future, err := p.js.PublishMsgAsync(m)
	if err != nil {
		return
	}
	u.future = future
}

// confirmed takes the oldest message off the list. One that was sent again may
// be a duplicate of itself.
func (p *publisher) confirmed(ack *jetstream.PubAck) {
	u := p.drop()
	if u.tries > 1 {
		p.result.Repeated++
	}
	if ack.Duplicate && u.tries == 1 {
		p.result.Duplicates++
		if len(p.there) < maxCompared {
			p.there = append(p.there, stored{u.message, ack.Sequence})
		}
		return
	}
	p.result.Stored++
	if p.result.First == 0 {
		p.result.First = ack.Sequence
	}
	p.result.First = min(p.result.First, ack.Sequence)
	p.result.Last = max(p.result.Last, ack.Sequence)
}

// same finds out whether what is already there are these very messages: an id
// of file and line may have been used for another subject or another text, and
// then this one is not stored anywhere.
func (p *publisher) same(ctx context.Context) error {
	if len(p.there) == 0 {
		return nil
	}
	st, err := p.js.Stream(ctx, p.result.Stream)
	if err != nil {
		return fmt.Errorf("compare with stream %s: %w", p.result.Stream, err)
	}
	for _, k := range p.there {
		m, err := st.GetMsg(ctx, k.sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // handled and purged
		}
		if err != nil {
			return fmt.Errorf("compare with stream %s: %w", p.result.Stream, err)
		}
		if m.Subject != p.result.Subject || !bytes.Equal(m.Data, k.data) {
			return fmt.Errorf("%snot stored: its id %q belongs to another message (%s, sequence %d of stream %s) and is remembered for the duplicate window; give these messages ids of their own with --id", k.where(), k.id, m.Subject, k.sequence, p.result.Stream)
		}
	}
	return nil
}

func (p *publisher) drop() *unconfirmed {
	u := p.waiting[0]
	p.waiting = p.waiting[1:]
	p.bytes -= len(u.data)
	return u
}

// unanswered decides about the oldest message: sent again, or given up.
func (p *publisher) unanswered(err error) error {
	if why := refusal(err, p.result); why != "" {
		u := p.drop()
		return fmt.Errorf("%s%s", u.where(), why)
	}
	p.waiting[0].future = nil
	return p.repeat()
}

// repeat sends everything again that has got no answer and cannot get one any
// more: with the same id, so that it is stored once.
func (p *publisher) repeat() error {
	if u := p.waiting[0]; time.Since(u.since) > p.timeout {
		p.drop()
		return fmt.Errorf("%sno confirmation within %s (connection is %s); the message may be stored, publishing it again with the same id is safe", u.where(), p.timeout, strings.ToLower(p.nc.Status().String()))
	}
	if !p.nc.IsConnected() {
		return nil
	}
	for _, u := range p.waiting {
		if u.future == nil || lost(u.future) {
			u.future = nil
			p.send(u)
		}
	}
	return nil
}

// lost reports whether a future has ended for want of an answer. Another end
// stays for the one who waits.
func lost(f jetstream.PubAckFuture) bool {
	select {
	case err := <-f.Err():
		return err != nil
	default:
		return false
	}
}

// Error codes of the server that the client library has no names for.
const (
	codeNoResources jetstream.ErrorCode = 10023
	codeNoStorage   jetstream.ErrorCode = 10047
	codeStoreFailed jetstream.ErrorCode = 10077 // among others: the stream's maximum is reached
	codeBusy        jetstream.ErrorCode = 10167
)

// refusal is why the server does not store a message, or "" when it may have.
func refusal(err error, r published) string {
	if errors.Is(err, nats.ErrMaxPayload) {
		return "message is larger than the server's max_payload"
	}
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		return "" // the server has just started
	}
	var api jetstream.JetStreamError
	if !errors.As(err, &api) || api.APIError() == nil {
		return ""
	}
	switch code, text := api.APIError().ErrorCode, api.APIError().Description; {
	case code == codeBusy:
		return ""
	case code == codeStoreFailed && strings.Contains(text, "maximum"), code == codeNoStorage, code == codeNoResources:
		return fmt.Sprintf("stream %s is full (%s); wait until its pipelines have caught up, or raise server.max_bytes, and publish again: what is stored already is not stored twice", r.Stream, text)
	default:
		return fmt.Sprintf("stream %s refuses the message: %s (%d)", r.Stream, text, code)
	}
}
