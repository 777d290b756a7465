package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// BucketAttempts is the KV bucket of failed handler calls. JetStream's delivery count decides nothing: five clean restarts
// raise it with nothing handled, and a kill can set it back to one.
const BucketAttempts = "MQRUN_ATTEMPTS"

// attemptsTTL is twice the longest delay of a retry (a day), so that no record
// expires before its message comes back.
const attemptsTTL = 2 * maxDelay

// failures is the record of one message's failed calls.
type failures struct {
	Failed int    `json:"failed"`
	Reason string `json:"reason"` // of the last one
	Error  string `json:"error,omitempty"`
	// Due is when the next attempt may begin, in an ordered pipeline: it holds
	// the message itself, where others leave the delay to the nak.
	Due time.Time `json:"due,omitzero"`

	// Of Failed, how often the process ended in the middle of the call.
	Crashes int    `json:"crashes,omitempty"`
	Run     string `json:"run,omitempty"`  // of the process that ended last
	Step    int    `json:"step,omitempty"` // in which it ended
}

// attempts knows how often each message failed before. A first delivery is
// looked up in what was found at start (a record survives a crash, the
// delivery count may not), a later one in the bucket (another process may
// have written it).
type attempts struct {
	kv jetstream.KeyValue

	mu    sync.Mutex
	known map[string]failures
}

func (a *attempts) key(id *identity, sequence uint64) string {
	return id.keyAt(sequence) + "." + strconv.FormatUint(sequence, 10)
}

// load reads the records of one input above its ack floor.
func (a *attempts) load(ctx context.Context, id *identity, floor uint64) error {
	keys := []string{id.key + ".*"}
	for n := range id.rewound {
		keys = append(keys, fmt.Sprintf("%s-%d.*", id.key, n+1))
	}
	w, err := a.kv.WatchFiltered(ctx, keys, jetstream.IgnoreDeletes())
	if err != nil {
		return fmt.Errorf("read attempts of %s: %w", id.key, err)
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("read attempts of %s: %w", id.key, ctx.Err())
		case e := <-w.Updates():
			if e == nil {
				return nil
			}
			seq, err := strconv.ParseUint(e.Key()[strings.LastIndexByte(e.Key(), '.')+1:], 10, 64)
			if err != nil || seq <= floor {
				continue
			}
			var f failures
			if json.Unmarshal(e.Value(), &f) == nil {
				a.mu.Lock()
				a.known[e.Key()] = f
				a.mu.Unlock()
			}
		}
	}
}

// of tells how often a message failed before.
func (a *attempts) of(ctx context.Context, id *identity, sequence, deliveries uint64) (failures, error) {
	if deliveries <= 1 {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.known) == 0 {
			return failures{}, nil
		}
		return a.known[a.key(id, sequence)], nil
	}
	key := a.key(id, sequence)
	e, err := a.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return failures{}, nil
	}
	if err != nil {
		return failures{}, err
	}
	var f failures
	if err := json.Unmarshal(e.Value(), &f); err != nil {
		return failures{}, fmt.Errorf("attempt record %s: %w", key, err)
	}
	return f, nil
}

// record is what has to be stored before the nak.
func (a *attempts) record(key string, f failures) (publish, error) {
	body, err := json.Marshal(f)
	return publish{subject: "$KV." + BucketAttempts + "." + key, data: body}, err
}

// forget drops a settled message's record from memory.
func (a *attempts) forget(id *identity, sequence uint64) {
	a.mu.Lock()
	if len(a.known) > 0 {
		delete(a.known, a.key(id, sequence))
	}
	a.mu.Unlock()
}
