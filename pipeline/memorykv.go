package pipeline

import (
	"bytes"
	"context"
	"sync"

	"github.com/mqrun/mqrun/host"
)

// memoryKV is the buckets of a rehearsal.
type memoryKV struct {
	mu       sync.Mutex
	entries  map[[2]string]memoryEntry // by bucket and key
	revision uint64
}

type memoryEntry struct {
	value    []byte
	revision uint64
}

var _ host.KV = (*memoryKV)(nil)

func newMemoryKV() *memoryKV { return &memoryKV{entries: map[[2]string]memoryEntry{}} }

func (m *memoryKV) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries)
}

func (m *memoryKV) Get(_ context.Context, bucket, key string) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[[2]string{bucket, key}]
	if !ok {
		return nil, 0, host.ErrKVAbsent
	}
	return e.value, e.revision, nil
}

func (m *memoryKV) Put(_ context.Context, bucket, key string, value []byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(bucket, key, value), nil
}

func (m *memoryKV) Create(_ context.Context, bucket, key string, value []byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.entries[[2]string{bucket, key}]; ok {
		return 0, host.ErrKVConflict
	}
	return m.set(bucket, key, value), nil
}

func (m *memoryKV) Update(_ context.Context, bucket, key string, value []byte, revision uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[[2]string{bucket, key}].revision != revision {
		return 0, host.ErrKVConflict
	}
	return m.set(bucket, key, value), nil
}

func (m *memoryKV) Delete(_ context.Context, bucket, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, [2]string{bucket, key})
	return nil
}

// set is called with m.mu held.
func (m *memoryKV) set(bucket, key string, value []byte) uint64 {
	m.revision++
	m.entries[[2]string{bucket, key}] = memoryEntry{bytes.Clone(value), m.revision}
	return m.revision
}
