package host

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// shelf is a KV in memory; the one over JetStream is the pipeline's.
type shelf struct {
	mu       sync.Mutex
	values   map[string][]byte
	revision map[string]uint64
	last     uint64
	gets     int
	fails    error
	hangs    bool
}

func newShelf() *shelf { return &shelf{values: map[string][]byte{}, revision: map[string]uint64{}} }

func (s *shelf) do(ctx context.Context, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.fails != nil {
		return s.fails
	}
	return f()
}

func (s *shelf) Get(ctx context.Context, bucket, key string) (v []byte, rev uint64, err error) {
	err = s.do(ctx, func() error {
		s.gets++
		var ok bool
		if v, ok = s.values[bucket+"/"+key]; !ok {
			return ErrKVAbsent
		}
		rev = s.revision[bucket+"/"+key]
		return nil
	})
	return v, rev, err
}

func (s *shelf) put(ctx context.Context, at string, v []byte, want func(uint64) bool) (rev uint64, err error) {
	err = s.do(ctx, func() error {
		if !want(s.revision[at]) {
			return ErrKVConflict
		}
		s.last++
		s.values[at], s.revision[at], rev = v, s.last, s.last
		return nil
	})
	return rev, err
}

func (s *shelf) Put(ctx context.Context, bucket, key string, v []byte) (uint64, error) {
	return s.put(ctx, bucket+"/"+key, v, func(uint64) bool { return true })
}

func (s *shelf) Create(ctx context.Context, bucket, key string, v []byte) (uint64, error) {
	return s.put(ctx, bucket+"/"+key, v, func(r uint64) bool { return r == 0 })
}

func (s *shelf) Update(ctx context.Context, bucket, key string, v []byte, revision uint64) (uint64, error) {
	return s.put(ctx, bucket+"/"+key, v, func(r uint64) bool { return r == revision })
}

func (s *shelf) Delete(ctx context.Context, bucket, key string) error {
	return s.do(ctx, func() error {
		delete(s.values, bucket+"/"+key)
		delete(s.revision, bucket+"/"+key)
		return nil
	})
}

const (
	kvOpGet = iota
	kvOpPut
	kvOpCreate
	kvOpUpdate
	kvOpDelete
)

// kvMessage is an input of testdata/kv.wat.
func kvMessage(op uint32, bucket, key, value string, revision uint32) *Message {
	var b []byte
	for _, w := range []uint32{op, uint32(len(bucket)), uint32(len(key)), uint32(len(value)), revision} {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return message(string(b) + bucket + key + value)
}

func TestKV(t *testing.T) {
	s := newShelf()
	p := load(t, "kv", Settings{Buckets: []string{"other", "seen"}, KV: s, Limits: Limits{OutputBytes: 1000}})
	for i, tt := range []struct {
		op            uint32
		bucket, key   string
		value         string
		revision      uint32
		want          int32
		got           string
		seen          uint64
		errorOfServer error
	}{
		{op: kvOpGet, bucket: "seen", key: "a", want: ErrnoAbsent},
		{op: kvOpPut, bucket: "seen", key: "a", value: "1", seen: 1},
		{op: kvOpGet, bucket: "seen", key: "a", got: "1", seen: 1},
		{op: kvOpCreate, bucket: "seen", key: "a", value: "2", want: ErrnoConflict},
		{op: kvOpCreate, bucket: "other", key: "a", value: "", seen: 2},
		{op: kvOpGet, bucket: "other", key: "a", seen: 2},
		{op: kvOpUpdate, bucket: "seen", key: "a", value: "3", revision: 7, want: ErrnoConflict},
		{op: kvOpUpdate, bucket: "seen", key: "a", value: "3", revision: 1, seen: 3},
		{op: kvOpDelete, bucket: "seen", key: "a"},
		{op: kvOpGet, bucket: "seen", key: "a", want: ErrnoAbsent},
		{op: kvOpGet, bucket: "secret", key: "a", want: ErrnoNotAllowed},
		{op: kvOpPut, bucket: "", key: "a", want: ErrnoNotAllowed},
		{op: kvOpPut, bucket: "seen", key: "", want: ErrnoInvalid},
		{op: kvOpPut, bucket: "seen", key: "a b", want: ErrnoInvalid},
		{op: kvOpPut, bucket: "seen", key: "*", want: ErrnoInvalid},
		{op: kvOpPut, bucket: "seen", key: ".a", want: ErrnoInvalid},
		{op: kvOpPut, bucket: "seen", key: "a\r\n", want: ErrnoInvalid},
		{op: kvOpPut, bucket: "seen", key: strings.Repeat("k", maxKey+1), want: ErrnoInvalid},
		{op: kvOpPut, bucket: "seen", key: "a", value: strings.Repeat("v", 1001), want: ErrnoLimit},
		{op: kvOpPut, bucket: "seen", key: "a", errorOfServer: ErrKVLimit, want: ErrnoLimit},
		{op: kvOpPut, bucket: "seen", key: "a", errorOfServer: errors.New("no server"), want: ErrnoUnavailable},
		{op: kvOpGet, bucket: "seen", key: "a", errorOfServer: errors.New("no server"), want: ErrnoUnavailable},
		{op: kvOpDelete, bucket: "seen", key: "a", errorOfServer: errors.New("no server"), want: ErrnoUnavailable},
	} {
		s.fails = tt.errorOfServer
		res := run(t, p, kvMessage(tt.op, tt.bucket, tt.key, tt.value, tt.revision))
		if res.Code != tt.want {
			t.Errorf("%d: returned %d, want %d", i, res.Code, tt.want)
			continue
		}
		if tt.want != OK {
			continue
		}
		revision := res.Outputs[len(res.Outputs)-1].Data
		if n := binary.LittleEndian.Uint64(revision); n != tt.seen {
			t.Errorf("%d: revision %d, want %d", i, n, tt.seen)
		}
		if tt.op == kvOpGet && string(res.Outputs[0].Data) != tt.got {
			t.Errorf("%d: read %q, want %q", i, res.Outputs[0].Data, tt.got)
		}
	}
}

// The size and the value are of one moment, whatever happens in between.
func TestKVValueOfASizeCallIsHeld(t *testing.T) {
	s := newShelf()
	p := load(t, "kv", Settings{Buckets: []string{"b"}, KV: s})
	run(t, p, kvMessage(kvOpPut, "b", "k", "value", 0))
	s.gets = 0
	if res := run(t, p, kvMessage(kvOpGet, "b", "k", "", 0)); string(res.Outputs[0].Data) != "value" || s.gets != 1 {
		t.Errorf("%q after %d reads of the store", res.Outputs[0].Data, s.gets)
	}
}

func TestKVThatHangsEndsWithTheCall(t *testing.T) {
	s := newShelf()
	s.hangs = true
	p := load(t, "kv", Settings{Buckets: []string{"b"}, KV: s, Limits: Limits{Timeout: 50 * time.Millisecond}})
	if ce := fail(t, p, kvMessage(kvOpGet, "b", "k", "", 0)); ce.Reason != ReasonTimeout || !strings.Contains(ce.Text, "timed out after 50ms (in read)") {
		t.Errorf("%v", ce)
	}
	p = load(t, "kv", hour(Settings{Buckets: []string{"b"}, KV: s}))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := p.Handle(ctx, kvMessage(kvOpGet, "b", "k", "", 0), &Result{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestKVHasToBeAllowed(t *testing.T) {
	s := Settings{Name: "orders", File: "orders.wasm"}
	_, err := s.Inspect(guest(t, "kv"))
	if err == nil || err.Error() != `orders.wasm imports "kv_get" from "mqrun_v1", which is not allowed; name its buckets: plugins.orders.allow.kv` {
		t.Errorf("%v", err)
	}
	s.Buckets = []string{"b"}
	if _, err := s.Inspect(guest(t, "kv")); err != nil {
		t.Error(err)
	}
}

func TestKVWithoutAServer(t *testing.T) {
	p := load(t, "kv", Settings{Buckets: []string{"b"}})
	if res := run(t, p, kvMessage(kvOpGet, "b", "k", "", 0)); res.Code != ErrnoUnavailable {
		t.Errorf("%d", res.Code)
	}
}
