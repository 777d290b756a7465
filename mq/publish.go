package mq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/subject"
)

// PublishOpt changes a message before it is published.
type PublishOpt func(*nats.Msg)

// WithHeader adds a value to a header of the message; values given before stay.
// Names keep their case.
func WithHeader(key, value string) PublishOpt {
	return func(m *nats.Msg) {
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		m.Header[key] = append(m.Header[key], value)
	}
}

// Publish stores a message and returns nil once the server has confirmed it,
// which takes 5 s at most when ctx has no deadline. When the confirmation does
// not come the message may be stored all the same; a publish with the same
// Nats-Msg-Id header within 2 minutes stores it once.
//
// A trace in ctx travels in the headers, unless they have a traceparent.
//
// Errors: ErrInvalidSubject, ErrMessageTooLarge, ErrQueueFull, ErrNoStream,
// ErrClosed.
func (e *EmbeddedNATS) Publish(ctx context.Context, subject string, data []byte, opts ...PublishOpt) error {
	if err := e.publish(ctx, subject, data, opts); err != nil {
		return fmt.Errorf("publish to %q: %w", subject, err)
	}
	return nil
}

func (e *EmbeddedNATS) publish(ctx context.Context, subj string, data []byte, opts []PublishOpt) error {
	m := &nats.Msg{Subject: subj, Data: data}
	for _, o := range opts {
		o(m)
	}
	if err := checkSubject(m.Subject); err != nil {
		return err
	}
	if err := checkHeader(m.Header); err != nil {
		return err
	}
	if p, s := TraceFromContext(ctx); p != "" && headerValue(m.Header, traceparent) == "" {
		WithHeader(traceparent, p)(m)
		if s != "" {
			WithHeader(tracestate, s)(m)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.use(); err != nil {
		return err
	}
	defer e.inUse.Done()
	_, err := e.js.PublishMsg(ctx, m)
	if err != nil {
		return e.publishError(m, err)
	}
	return nil
}

// checkSubject refuses what nobody may publish to. The server would store a
// message for "orders.*" under that very name.
func checkSubject(s string) error {
	if err := subject.Valid(s); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidSubject, err)
	}
	if subject.Reserved(s) {
		return fmt.Errorf("%w: it is reserved ($*, _INBOX.>, mqrun.>)", ErrInvalidSubject)
	}
	return nil
}

// checkHeader refuses names that the client library would drop silently.
func checkHeader(h nats.Header) error {
	for k := range h {
		ok := k != "" && !strings.ContainsFunc(k, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
		})
		if !ok {
			return fmt.Errorf("header name %q is invalid; use letters, digits and -", k)
		}
	}
	return nil
}

// Codes that nats.go has no name for (nats-server, server/errors.json).
const (
	codeInsufficientResources jetstream.ErrorCode = 10023
	codeStorageExceeded       jetstream.ErrorCode = 10047
	codeSubjectOverlap        jetstream.ErrorCode = 10065
	codeNoPeers               jetstream.ErrorCode = 10005
	codeUnavailable           jetstream.ErrorCode = 10008
	codeNoCluster             jetstream.ErrorCode = 10074
	codeStoreFailed           jetstream.ErrorCode = 10077
	codeTooManyRequests       jetstream.ErrorCode = 10167
)

func apiError(err error) *jetstream.APIError {
	var e jetstream.JetStreamError
	if errors.As(err, &e) {
		return e.APIError()
	}
	return nil
}

func hasCode(err error, code jetstream.ErrorCode) bool {
	a := apiError(err)
	return a != nil && a.ErrorCode == code
}

// publishError tells in our words why a message was not confirmed.
func (e *EmbeddedNATS) publishError(m *nats.Msg, err error) error {
	a := apiError(err)
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: make a stream for it, or publish to one of %s", ErrNoStream, strings.Join(e.opts.Subjects, ", "))
	case errors.Is(err, nats.ErrMaxPayload):
		return tooLarge(m, e.nc.MaxPayload(), "the server")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("no confirmation came; the message may be stored: %w", err)
	case a == nil:
		return err
	}
	switch a.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		name, limit := e.streamLimit(m.Subject)
		return tooLarge(m, limit, name)
	case codeStoreFailed:
		if strings.Contains(a.Description, "maximum") { // bytes, messages, messages per subject
			return fmt.Errorf("%w: %w", ErrQueueFull, err)
		}
	case codeInsufficientResources, codeStorageExceeded, codeTooManyRequests:
		return fmt.Errorf("%w: %w", ErrQueueFull, err)
	}
	return err
}

func tooLarge(m *nats.Msg, limit int64, of string) error {
	if limit <= 0 {
		return fmt.Errorf("%w: %d bytes of payload; headers count too", ErrMessageTooLarge, len(m.Data))
	}
	return fmt.Errorf("%w: %d bytes of payload, and %s takes %d with headers", ErrMessageTooLarge, len(m.Data), of, limit)
}

// streamLimit asks which stream refused a message. It is for an error text, so
// not knowing is fine.
func (e *EmbeddedNATS) streamLimit(subj string) (string, int64) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	name, err := e.js.StreamNameBySubject(ctx, subj)
	if err != nil {
		return "the stream", 0
	}
	st, err := e.js.Stream(ctx, name)
	if err != nil {
		return "stream " + name, 0
	}
	return "stream " + name, int64(st.CachedInfo().Config.MaxMsgSize)
}
