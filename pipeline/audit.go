package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// AuditStream holds what people did to dead letters, one line each. It can be
// read and grows old; it cannot be purged.
const AuditStream = "MQRUN_AUDIT"

const (
	auditSubject = "mqrun.audit"
	auditAge     = 365 * 24 * time.Hour
)

func auditSpec(maxBytes int64) mq.StreamSpec {
	return mq.StreamSpec{
		Name: AuditStream, Subjects: []string{auditSubject + ".>"}, Discard: "old", DenyPurge: true,
		MaxAge: auditAge, MaxBytes: mq.Budget(maxBytes, 1).KV / 20,
	}
}

// AuditLine is who did what to which dead letter.
type AuditLine struct {
	Time   time.Time `json:"time"`
	By     string    `json:"by"`
	Action string    `json:"action"` // replay, edit, purge or try
	Letter Letter    `json:"letter,omitzero"`

	To      string `json:"to,omitempty"` // subject, stream and place of the replay
	ID      string `json:"id,omitempty"`
	Before  string `json:"sha256_before,omitempty"` // of an edited payload
	After   string `json:"sha256_after,omitempty"`
	Module  string `json:"module,omitempty"` // of a trial, with its sha256
	Verdict string `json:"verdict,omitempty"`
}

// What says in words what is particular to the action.
func (a AuditLine) What() string {
	switch a.Action {
	case "try":
		return a.Module + ": " + a.Verdict
	case "edit":
		return "to " + a.To + ", payload " + short(a.Before) + " -> " + short(a.After)
	case "replay":
		return "to " + a.To
	}
	return ""
}

func short(digest string) string { return digest[:min(12, len(digest))] }

// audit stores the line. What cannot be written down is not done.
func (l *Letters) audit(ctx context.Context, a AuditLine) error {
	a.Time, a.By = time.Now().UTC(), l.by
	body, err := json.Marshal(a)
	if err == nil {
		_, err = l.js.Publish(ctx, auditSubject+".dlq."+a.Action, body)
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		err = fmt.Errorf("the server has no stream %s; run this version's mqrun run on it first: %w", AuditStream, err)
	}
	if err != nil {
		return fmt.Errorf("audit line for dead letter %d: %w", a.Letter.Sequence, err)
	}
	return nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ReadAudit returns the newest lines, oldest first; 0 is all.
func ReadAudit(ctx context.Context, nc *nats.Conn, limit int) ([]AuditLine, error) {
	wrap := func(err error) error { return fmt.Errorf("read audit lines: %w", err) }
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, wrap(err)
	}
	st, err := js.Stream(ctx, AuditStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err)
	}
	state := st.CachedInfo().State
	if state.Msgs == 0 {
		return nil, nil
	}
	first := state.FirstSeq
	if n := uint64(limit); n > 0 && state.LastSeq-first >= n { // nothing is removed from the middle
		first = state.LastSeq - n + 1
	}
	c, err := st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first})
	if err != nil {
		return nil, wrap(err)
	}
	it, err := c.Messages()
	if err != nil {
		return nil, wrap(err)
	}
	defer it.Stop()
	var lines []AuditLine
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, wrap(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, wrap(err)
		}
		var a AuditLine
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			return nil, wrap(err)
		}
		if lines = append(lines, a); meta.Sequence.Stream >= state.LastSeq {
			return lines, nil
		}
	}
}
