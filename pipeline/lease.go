package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

// BucketLeases is the KV bucket of who runs what only one process may run. It
// is on the disk: else a server that is started again would give a lease away
// that somebody is still sure of.
const BucketLeases = "MQRUN_LEASES"

const (
	leaseTTL   = 5 * time.Second
	leaseEvery = time.Second // how often a lease is kept alive
	leaseSure  = leaseTTL - leaseEvery
)

var errLeaseLost = errors.New("lease is lost")

// openLeases makes the bucket.
func openLeases(ctx context.Context, js jetstream.JetStream, maxBytes int64, replicas int) (jetstream.KeyValue, error) {
	kv, err := mq.EnsureBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: BucketLeases, Description: "who runs what only one process may run",
		TTL: leaseTTL, History: 1, Storage: jetstream.FileStorage, MaxBytes: maxBytes, Replicas: replicas,
	})
	if err != nil {
		return nil, err
	}
	return kv, nil
}

// lease is the right to run something, taken for a few seconds at a time. It
// saves work and keeps order; it is a fence as far as its holder looks at the
// clock: between that look and the server a process can still stand still. held may be called concurrently with
// the others, which take turns. A request that was sent is waited for, whatever
// becomes of ctx: a lease that nobody knows of is in the way for its whole time.
type lease struct {
	open       func(context.Context) (jetstream.KeyValue, error)
	kv         jetstream.KeyValue
	key, owner string
	gone       string // how an owner that is known to be dead ends; "": none

	rev   uint64
	doubt bool // a request had no answer: rev may be old

	mu    sync.Mutex
	until time.Time // sure to be ours before
}

type leaseRecord struct {
	Owner string `json:"owner"`
}

func (l *lease) held(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// By both clocks: one may stand still while the machine does.
	return now.Before(l.until) && now.Round(0).Before(l.until.Round(0))
}

func (l *lease) set(rev uint64, until time.Time) {
	l.rev, l.doubt = rev, false
	l.mu.Lock()
	l.until = until
	l.mu.Unlock()
}

// acquire takes the lease when nobody has it. Otherwise holder says who does.
func (l *lease) acquire(ctx context.Context) (ok bool, holder string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*leaseEvery)
	defer cancel()
	sent := time.Now()
	rev, err := l.kv.Create(ctx, l.key, l.record())
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // somebody removed the bucket
		var kv jetstream.KeyValue
		if kv, err = l.open(ctx); err == nil {
			l.kv = kv
			rev, err = kv.Create(ctx, l.key, l.record())
		}
	}
	if err == nil {
		l.set(rev, sent.Add(leaseSure))
		return true, "", nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		l.doubt = true
		return false, "", fmt.Errorf("take lease %s: %w", l.key, err)
	}
	e, r, err := l.look(ctx)
	switch {
	case err != nil:
		return false, "", err
	case e == nil: // it has expired at this moment
		return false, "", nil
	case r.Owner != l.owner && (l.gone == "" || !strings.HasSuffix(r.Owner, l.gone)):
		return false, r.Owner, nil
	}
	// Ours: the answer to an earlier request was lost. Or nobody's.
	l.rev = e.Revision()
	if err := l.renew(ctx); err != nil {
		return false, "", err
	}
	return true, "", nil
}

// renew keeps the lease alive. errLeaseLost is final; after another error it
// may still be ours for as long as held says so.
func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseEvery)
	defer cancel()
	sent := time.Now()
	rev, err := l.kv.Update(ctx, l.key, l.record(), l.rev)
	if wrong := (*jetstream.APIError)(nil); errors.As(err, &wrong) && wrong.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		// Somebody else's, gone, or ours by a request whose answer was lost.
		e, r, lookErr := l.look(ctx)
		switch {
		case lookErr != nil:
			return lookErr
		case e == nil || r.Owner != l.owner:
			l.set(0, time.Time{})
			return fmt.Errorf("keep lease %s: %w", l.key, errLeaseLost)
		}
		sent = time.Now()
		rev, err = l.kv.Update(ctx, l.key, l.record(), e.Revision())
	}
	if err != nil {
		l.doubt = true
		return fmt.Errorf("keep lease %s: %w", l.key, err)
	}
	l.set(rev, sent.Add(leaseSure))
	return nil
}

// release gives the lease away at once, if it is still ours.
func (l *lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseEvery)
	defer cancel()
	rev, doubt := l.rev, l.doubt
	l.set(0, time.Time{})
	if doubt {
		e, r, err := l.look(ctx)
		switch {
		case err != nil:
			return err
		case e == nil || r.Owner != l.owner:
			return nil
		}
		rev = e.Revision()
	}
	if rev == 0 {
		return nil
	}
	if err := l.kv.Delete(ctx, l.key, jetstream.LastRevision(rev)); err != nil {
		return fmt.Errorf("give up lease %s: %w", l.key, err)
	}
	return nil
}

func (l *lease) look(ctx context.Context) (jetstream.KeyValueEntry, leaseRecord, error) {
	var r leaseRecord
	e, err := l.kv.Get(ctx, l.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, r, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), &r)
	}
	if err != nil {
		return nil, r, fmt.Errorf("read lease %s: %w", l.key, err)
	}
	return e, r, nil
}

func (l *lease) record() []byte {
	b, err := json.Marshal(leaseRecord{Owner: l.owner})
	if err != nil {
		panic(err) // one text
	}
	return b
}

// keep calls mind every second, and when woken, until ctx is done, and then
// gives the lease up.
func (l *lease) keep(ctx context.Context, log *slog.Logger, woken <-chan struct{}, mind func(context.Context)) {
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	for {
		mind(ctx)
		select {
		case <-t.C:
		case <-woken:
		case <-ctx.Done():
			if err := l.release(ctx); err != nil {
				log.Warn("others take over when it has expired", "error", err)
			}
			return
		}
	}
}

// processName tells people, and us, who has a lease.
func processName(id string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s pid %d %s", host, os.Getpid(), id)
}
