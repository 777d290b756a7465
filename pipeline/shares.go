package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// shares say which parts of a pipeline are for this process: as many as the
// other processes have, give or take one. Each process writes every second that
// it is there, under a key that expires, and reads who else is and who has what.
type shares struct {
	open     func(context.Context) (jetstream.KeyValue, error)
	kv       jetstream.KeyValue
	nc       *nats.Conn
	log      *slog.Logger
	pipeline string
	parts    int
	self     string // in the keys
	owner    string // in the leases

	mu      sync.Mutex
	want    int
	mine    map[int]bool // taken, or about to be
	holders map[int]string
}

func (s *shares) memberKey() string { return s.pipeline + ".member." + s.self }

func partKey(pipeline string, of, n int) string { return fmt.Sprintf("%s.part.%d.%d", pipeline, of, n) }

// keep takes part until ctx is done.
func (s *shares) keep(ctx context.Context) {
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	said := false
	for {
		err := s.round(ctx)
		switch {
		case err == nil:
			said = false
		case !said && ctx.Err() == nil:
			said = true
			s.log.Warn("who shares the parts is not known, trying again", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// leave lets the others take all.
func (s *shares) leave(ctx context.Context) {
	s.mu.Lock()
	s.want = 0
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseEvery)
	defer cancel()
	if err := s.kv.Delete(ctx, s.memberKey()); err != nil {
		s.log.Warn("others take over when it has expired", "error", err)
	}
}

func (s *shares) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*leaseEvery)
	defer cancel()
	_, err := s.kv.Put(ctx, s.memberKey(), []byte(`{}`))
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // somebody removed the bucket
		if s.kv, err = s.open(ctx); err == nil {
			_, err = s.kv.Put(ctx, s.memberKey(), []byte(`{}`))
		}
	}
	if err != nil {
		return err
	}
	entries, err := currentOf(ctx, s.nc, BucketLeases, s.pipeline+".>")
	if err != nil {
		return err
	}
	members := []string{s.self}
	holders := map[int]string{}
	for key, value := range entries {
		if name, ok := strings.CutPrefix(key, s.pipeline+".member."); ok && name != s.self {
			members = append(members, name)
			continue
		}
		for n := range s.parts {
			if key != partKey(s.pipeline, s.parts, n) {
				continue
			}
			var r leaseRecord
			if json.Unmarshal(value, &r) == nil {
				holders[n] = r.Owner
			}
		}
	}
	slices.Sort(members)
	want := s.parts / len(members)
	if slices.Index(members, s.self) < s.parts%len(members) {
		want++
	}
	s.mu.Lock()
	s.want, s.holders = want, holders
	s.mu.Unlock()
	return nil
}

// claim reports whether this process may try to take a part: it is free, and
// not one too many.
func (s *shares) claim(n int) (ok bool, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holder = s.holders[n]
	if s.mine[n] {
		return true, ""
	}
	if len(s.mine) >= s.want || holder != "" && holder != s.owner {
		return false, holder
	}
	s.mine[n] = true
	return true, ""
}

// drop ends a claim.
func (s *shares) drop(n int) {
	s.mu.Lock()
	delete(s.mine, n)
	s.mu.Unlock()
}

// surplus reports whether a part that is ours is one that another process waits
// for: the last ones go.
func (s *shares) surplus(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mine) <= s.want || s.want == 0 {
		return false
	}
	before := 0
	for m := range s.mine {
		if m < n {
			before++
		}
	}
	return before >= s.want
}

// currentOf reads all keys of a bucket below a filter with one request. A watcher
// would make a consumer each time.
func currentOf(ctx context.Context, nc *nats.Conn, bucket, filter string) (map[string][]byte, error) {
	wrap := func(err error) error { return fmt.Errorf("read %s of bucket %s: %w", filter, bucket, err) }
	prefix := "$KV." + bucket + "."
	body, err := json.Marshal(map[string]any{"multi_last": []string{prefix + filter}})
	if err != nil {
		return nil, wrap(err)
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, wrap(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest("$JS.API.DIRECT.GET.KV_"+bucket, inbox, body); err != nil {
		return nil, wrap(err)
	}
	all := map[string][]byte{}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, wrap(err)
		}
		switch m.Header.Get("Status") {
		case "":
		case "204", "404": // the end; nothing at all
			return all, nil
		default:
			return nil, wrap(fmt.Errorf("%s %s", m.Header.Get("Status"), m.Header.Get("Description")))
		}
		key := strings.TrimPrefix(m.Header.Get("Nats-Subject"), prefix)
		if m.Header.Get("KV-Operation") == "" {
			all[key] = m.Data
		}
	}
}
