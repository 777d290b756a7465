package mq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

const (
	parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	other  = "00-4bf92f3577b34da6a3ce929d0e0e4736-ffffffffffffffff-00"
)

func TestPublishRefuses(t *testing.T) {
	q := open(t, mq.Options{})
	ctx := deadline(t)
	if _, err := mq.EnsureStream(ctx, q.JetStream(), mq.StreamSpec{Name: "SMALL", Subjects: []string{"small"}, MaxMsgSize: 1000}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		subject string
		size    int
		opts    []mq.PublishOpt
		is      error
		says    []string
	}{
		"empty":                {"", 1, nil, mq.ErrInvalidSubject, []string{"empty"}},
		"wildcard":             {"ingest.*", 1, nil, mq.ErrInvalidSubject, []string{"ingest.*", "wildcard"}},
		"tail wildcard":        {"ingest.>", 1, nil, mq.ErrInvalidSubject, []string{"wildcard"}},
		"blank":                {"ingest.a b", 1, nil, mq.ErrInvalidSubject, []string{"blank"}},
		"line break":           {"ingest.a\r\nPUB x 0", 1, nil, mq.ErrInvalidSubject, nil},
		"empty token":          {"ingest..a", 1, nil, mq.ErrInvalidSubject, nil},
		"reserved":             {"mqrun.MQRUN.redo.a", 1, nil, mq.ErrInvalidSubject, []string{"reserved"}},
		"server's":             {"$JS.API.STREAM.DELETE.MQRUN", 1, nil, mq.ErrInvalidSubject, []string{"reserved"}},
		"inbox":                {"_INBOX.a", 1, nil, mq.ErrInvalidSubject, nil},
		"moved by an option":   {"ingest.a", 1, []mq.PublishOpt{func(m *nats.Msg) { m.Subject = "x.*" }}, mq.ErrInvalidSubject, nil},
		"no stream":            {"nobody.a", 1, nil, mq.ErrNoStream, []string{"nobody.a", "ingest.>"}},
		"over the server's":    {"ingest.a", 2 << 20, nil, mq.ErrMessageTooLarge, []string{"2097152", "1048576"}},
		"over the stream's":    {"ingest.a", 1<<20 - 32<<10, nil, mq.ErrMessageTooLarge, []string{"1015808", "983040", "MQRUN"}},
		"over a small stream":  {"small", 1001, nil, mq.ErrMessageTooLarge, []string{"1001", "1000", "SMALL"}},
		"header without name":  {"ingest.a", 1, []mq.PublishOpt{mq.WithHeader("", "x")}, nil, []string{"header name"}},
		"header with a colon":  {"ingest.a", 1, []mq.PublishOpt{mq.WithHeader("a:b", "x")}, nil, []string{"a:b"}},
		"header with a break":  {"ingest.a", 1, []mq.PublishOpt{mq.WithHeader("a\r\nb", "x")}, nil, []string{"header name"}},
		"expected other state": {"ingest.a", 1, []mq.PublishOpt{mq.WithHeader("Nats-Expected-Last-Sequence", "7")}, nil, []string{"wrong last sequence"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := q.Publish(ctx, tt.subject, make([]byte, tt.size), tt.opts...)
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) {
				t.Fatalf("got %v; want %v", err, tt.is)
			}
			for _, w := range tt.says {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not say %q", err, w)
				}
			}
		})
	}
	st, err := q.JetStream().Stream(ctx, mq.StreamName())
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages were stored", n)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := q.Publish(done, "ingest.a", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := q.Publish(ctx, "ingest.a", make([]byte, 1<<20-64<<10-100)); err != nil {
		t.Errorf("the largest message: %v", err)
	}
	if err := q.Publish(ctx, "dlq.a", make([]byte, 1<<20-100)); err != nil {
		t.Errorf("the largest dead letter: %v", err)
	}
}

// stored publishes and reads back what the stream holds.
func stored(t *testing.T, q *mq.EmbeddedNATS, ctx context.Context, opts ...mq.PublishOpt) *jetstream.RawStreamMsg {
	t.Helper()
	if err := q.Publish(ctx, "ingest.a", []byte("x"), opts...); err != nil {
		t.Fatal(err)
	}
	st, err := q.JetStream().Stream(ctx, mq.StreamName())
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(ctx, "ingest.a")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPublishHeaders(t *testing.T) {
	q := open(t, mq.Options{})
	m := stored(t, q, deadline(t), mq.WithHeader("X-a", "1"), mq.WithHeader("X-a", "2"), mq.WithHeader("x-A", "3"))
	if got := m.Header["X-a"]; !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("X-a is %q", got)
	}
	if got := m.Header["x-A"]; !slices.Equal(got, []string{"3"}) {
		t.Errorf("x-A is %q", got)
	}
}

func TestPublishCarriesTheTrace(t *testing.T) {
	q := open(t, mq.Options{})
	ctx := deadline(t)
	for name, tt := range map[string]struct {
		ctx           context.Context
		opts          []mq.PublishOpt
		parent, state string
	}{
		"none":      {ctx, nil, "", ""},
		"parent":    {mq.ContextWithTrace(ctx, parent, ""), nil, parent, ""},
		"both":      {mq.ContextWithTrace(ctx, parent, "a=b"), nil, parent, "a=b"},
		"header":    {mq.ContextWithTrace(ctx, parent, "a=b"), []mq.PublishOpt{mq.WithHeader("Traceparent", other)}, "", ""},
		"malformed": {mq.ContextWithTrace(ctx, "00-xyz", ""), nil, "", ""},
		"all zero":  {mq.ContextWithTrace(ctx, "00-00000000000000000000000000000000-00f067aa0ba902b7-01", ""), nil, "", ""},
		"bad state": {mq.ContextWithTrace(ctx, parent, "a=b\r\nX: y"), nil, parent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := stored(t, q, tt.ctx, tt.opts...)
			if p, s := m.Header.Get("traceparent"), m.Header.Get("tracestate"); p != tt.parent || s != tt.state {
				t.Errorf("got %q and %q; want %q and %q", p, s, tt.parent, tt.state)
			}
		})
	}
}
