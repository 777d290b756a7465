package host

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// KV is the key-value store behind the kv functions. Methods are called
// concurrently and end when ctx does; ctx holds the call's deadline. A nil KV is
// one that never answers.
type KV interface {
	// Get returns ErrKVAbsent for a key that is not there.
	Get(ctx context.Context, bucket, key string) (value []byte, revision uint64, err error)
	Put(ctx context.Context, bucket, key string, value []byte) (revision uint64, err error)
	// Create returns ErrKVConflict when the key exists.
	Create(ctx context.Context, bucket, key string, value []byte) (revision uint64, err error)
	// Update returns ErrKVConflict when the key's revision is another.
	Update(ctx context.Context, bucket, key string, value []byte, revision uint64) (uint64, error)
	Delete(ctx context.Context, bucket, key string) error
}

// What a KV returns, or wraps. Any other error is told to the guest as
// ErrnoUnavailable.
var (
	ErrKVAbsent   = errors.New("no such key")
	ErrKVConflict = errors.New("another revision is there")
	ErrKVLimit    = errors.New("too large, or the bucket is full")
)

const (
	kvPrefix = "kv_"
	// maxKey bounds a key in bytes, well below what a subject takes.
	maxKey = 1024
)

// kvState is what an instance knows of its kv calls.
type kvState struct {
	revision uint64
	held     []byte // a value that did not fit
	holds    bool
	of       [2]string // its bucket and key
}

func (k *kvState) forget() { k.revision, k.held, k.holds = 0, nil, false }

// kvCall is the common part: it reads bucket and key and refuses what is not allowed.
func (c *call) kvCall(mem api.Memory, s []uint64) (bucket, key string, code int32) {
	b := c.view(mem, uint32(s[0]), uint32(s[1]))
	k := c.view(mem, uint32(s[2]), uint32(s[3]))
	i := slices.IndexFunc(c.plugin.settings.Buckets, func(name string) bool { return name == string(b) })
	switch {
	case i < 0:
		return "", "", ErrnoNotAllowed
	case !validKey(k):
		return "", "", ErrnoInvalid
	case c.plugin.settings.KV == nil:
		return "", "", ErrnoUnavailable
	}
	return c.plugin.settings.Buckets[i], string(k), 0
}

// validKey is JetStream's rule.
func validKey(k []byte) bool {
	if len(k) == 0 || len(k) > maxKey || k[0] == '.' || k[len(k)-1] == '.' || bytes.Contains(k, []byte("..")) {
		return false
	}
	for _, b := range k {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("-/_=.", b) >= 0:
		default:
			return false
		}
	}
	return true
}

func kvErrno(err error) int32 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrKVAbsent):
		return ErrnoAbsent
	case errors.Is(err, ErrKVConflict):
		return ErrnoConflict
	case errors.Is(err, ErrKVLimit):
		return ErrnoLimit
	}
	return ErrnoUnavailable
}

func kvGet(c *call, mem api.Memory, s []uint64) {
	held, of := c.kv.held, c.kv.of
	holds := c.kv.holds
	revision := c.kv.revision
	c.kv.forget()
	bucket, key, code := c.kvCall(mem, s)
	if code != 0 {
		s[0] = errno(code)
		return
	}
	value := held
	if !holds || of != [2]string{bucket, key} {
		var err error
		c.wait(func() { value, revision, err = c.plugin.settings.KV.Get(c, bucket, key) })
		if err != nil {
			s[0] = errno(kvErrno(err))
			return
		}
	}
	room := uint32(s[5])
	c.kv.revision = revision
	if int64(len(value)) > int64(room) {
		c.kv.held, c.kv.holds, c.kv.of = value, true, [2]string{bucket, key}
	}
	s[0] = c.give(mem, value, uint32(s[4]), room)
}

func kvRevision(c *call, _ api.Memory, s []uint64) { s[0] = c.kv.revision }

// kvWrite is the common part of what stores a value.
func (c *call) kvWrite(mem api.Memory, s []uint64, write func(kv KV, bucket, key string, value []byte) (uint64, error)) {
	c.kv.forget()
	bucket, key, code := c.kvCall(mem, s)
	value := c.view(mem, uint32(s[4]), uint32(s[5]))
	switch {
	case code != 0:
		s[0] = errno(code)
		return
	case int64(len(value)) > c.plugin.settings.Limits.OutputBytes:
		s[0] = errno(ErrnoLimit)
		return
	}
	value = bytes.Clone(value) // the instance may be gone before the store has sent it
	var revision uint64
	var err error
	c.wait(func() { revision, err = write(c.plugin.settings.KV, bucket, key, value) })
	if err == nil {
		c.kv.revision = revision
	}
	s[0] = errno(kvErrno(err))
}

func kvPut(c *call, mem api.Memory, s []uint64) {
	c.kvWrite(mem, s, func(kv KV, bucket, key string, value []byte) (uint64, error) {
		return kv.Put(c, bucket, key, value)
	})
}

func kvCreate(c *call, mem api.Memory, s []uint64) {
	c.kvWrite(mem, s, func(kv KV, bucket, key string, value []byte) (uint64, error) {
		return kv.Create(c, bucket, key, value)
	})
}

func kvUpdate(c *call, mem api.Memory, s []uint64) {
	seen := s[6]
	c.kvWrite(mem, s, func(kv KV, bucket, key string, value []byte) (uint64, error) {
		return kv.Update(c, bucket, key, value, seen)
	})
}

func kvDelete(c *call, mem api.Memory, s []uint64) {
	c.kv.forget()
	bucket, key, code := c.kvCall(mem, s)
	if code == 0 {
		var err error
		c.wait(func() { err = c.plugin.settings.KV.Delete(c, bucket, key) })
		code = kvErrno(err)
	}
	s[0] = errno(code)
}
