package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/subject"
)

// Letters are the dead letters of a server, for whoever looks after them. Its
// methods may be called concurrently.
type Letters struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	st      jetstream.Stream
	created string // of the stream of dead letters, as ids name it
	by      string
}

// Letter is one dead letter. Header and Data are empty in lists.
type Letter struct {
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Pipeline string    `json:"pipeline"`
	Step     string    `json:"step,omitempty"`
	Plugin   string    `json:"plugin,omitempty"` // name@sha256:12
	Reason   string    `json:"reason"`
	Stream   string    `json:"stream"`            // that the message came from
	Original uint64    `json:"original_sequence"` // its place there
	Subject  string    `json:"subject"`           // that it had
	Stub     bool      `json:"stub,omitempty"`    // the payload is only in the original

	Header nats.Header `json:"-"`
	Data   []byte      `json:"-"`
}

// Filter selects dead letters; the zero Filter selects all. What is set must
// all be met.
type Filter struct {
	Sequences []uint64
	Pipeline  string
	Reason    string
	Digest    string // how the plugin's sha256 begins
	Since     time.Time
	Until     time.Time
	Subject   string // a subject, or a filter, of the original
}

// String names what is set, as the command line does.
func (f Filter) String() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	for _, s := range f.Sequences {
		parts = append(parts, strconv.FormatUint(s, 10))
	}
	add("pipeline", f.Pipeline)
	add("reason", f.Reason)
	add("plugin", f.Digest)
	if !f.Since.IsZero() {
		add("since", f.Since.UTC().Format(time.RFC3339))
	}
	if !f.Until.IsZero() {
		add("until", f.Until.UTC().Format(time.RFC3339))
	}
	add("subject", f.Subject)
	return strings.Join(parts, " ")
}

func (f Filter) match(l Letter) bool {
	_, digest, _ := strings.Cut(l.Plugin, "@sha256:")
	// A dead letter names twelve digits; whoever gives more means no other.
	short := f.Digest[:min(len(f.Digest), len(digest))]
	switch {
	case f.Pipeline != "" && f.Pipeline != l.Pipeline,
		f.Reason != "" && f.Reason != l.Reason,
		f.Digest != "" && (digest == "" || !strings.HasPrefix(digest, strings.ToLower(short))),
		!f.Since.IsZero() && l.Time.Before(f.Since),
		!f.Until.IsZero() && !l.Time.Before(f.Until),
		f.Subject != "" && f.Subject != l.Subject && !subject.Match(f.Subject, l.Subject):
		return false
	}
	return true
}

// ErrNoLetter is returned for a sequence that holds no dead letter.
var ErrNoLetter = errors.New("there is no dead letter with this sequence")

// OpenLetters finds the dead letters of the server that nc talks to. by is who
// looks after them, for the audit lines.
func OpenLetters(ctx context.Context, nc *nats.Conn, by string) (*Letters, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open dead letters: %w", err)
	}
	st, err := js.Stream(ctx, mq.DLQStreamName())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("open dead letters: the server has no stream %s; is mqrun run still starting?", mq.DLQStreamName())
	}
	if err != nil {
		return nil, fmt.Errorf("open dead letters: %w", err)
	}
	return &Letters{nc: nc, js: js, st: st, by: by, created: strconv.FormatInt(st.CachedInfo().Created.UnixNano(), 36)}, nil
}

func readLetter(sequence uint64, at time.Time, h nats.Header) Letter {
	original, _ := strconv.ParseUint(get(h, "Mqrun-Sequence"), 10, 64) // 0 when somebody else wrote it
	return Letter{
		Sequence: sequence, Time: at, Original: original,
		Pipeline: get(h, "Mqrun-Pipeline"), Step: get(h, "Mqrun-Step"), Plugin: get(h, "Mqrun-Plugin"),
		Reason: get(h, "Mqrun-Reason"), Stream: get(h, "Mqrun-Stream"), Subject: get(h, hdrSubject),
		Stub: get(h, hdrStub) != "",
	}
}

// Read is one dead letter with all that it holds, byte for byte.
func (l *Letters) Read(ctx context.Context, sequence uint64) (Letter, error) {
	m, err := mq.ReadStored(ctx, l.nc, mq.DLQStreamName(), sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Letter{}, fmt.Errorf("dead letter %d: %w", sequence, ErrNoLetter)
	}
	if err != nil {
		return Letter{}, fmt.Errorf("dead letter %d: %w", sequence, err)
	}
	d := readLetter(m.Sequence, m.Time, m.Header)
	d.Header, d.Data = m.Header, m.Data
	return d, nil
}

// Find lists what the filter selects of what is there now, oldest first.
// Only headers travel. Each sequence that was named must be there.
func (l *Letters) Find(ctx context.Context, f Filter) ([]Letter, error) {
	var found []Letter
	if len(f.Sequences) > 0 {
		for _, seq := range f.Sequences {
			d, err := l.Read(ctx, seq)
			if err != nil {
				return nil, err
			}
			d.Header, d.Data = nil, nil
			if f.match(d) {
				found = append(found, d)
			}
		}
		return found, nil
	}
	info, err := l.st.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	if info.State.Msgs == 0 {
		return nil, nil
	}
	c, err := l.st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	it, err := c.Messages()
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
		if d := readLetter(meta.Sequence.Stream, meta.Timestamp, m.Headers()); f.match(d) {
			found = append(found, d)
		}
		if meta.Sequence.Stream >= info.State.LastSeq || meta.NumPending == 0 {
			return found, nil
		}
	}
}

// Purge removes a dead letter for ever. The audit line comes first.
func (l *Letters) Purge(ctx context.Context, d Letter) error {
	if err := l.audit(ctx, AuditLine{Action: "purge", Letter: d}); err != nil {
		return err
	}
	return l.remove(ctx, d)
}

func (l *Letters) remove(ctx context.Context, d Letter) error {
	if err := l.st.DeleteMsg(ctx, d.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("remove dead letter %d: %w", d.Sequence, err)
	}
	return nil
}
