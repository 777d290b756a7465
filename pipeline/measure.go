package pipeline

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
)

// secondsBounds are the upper bounds of the handle time's buckets, from what a
// small guest takes to what a long one may.
var secondsBounds = [...]time.Duration{
	10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second,
}

// histogram counts durations without a lock.
type histogram struct {
	buckets [len(secondsBounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(secondsBounds) && d > secondsBounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.nanos.Add(int64(d))
}

// Histogram is how long something took, each time.
type Histogram struct {
	Count   uint64
	Sum     float64            // seconds
	Buckets map[float64]uint64 // how many took at most so many seconds
}

func (h *histogram) snapshot() Histogram {
	s := Histogram{Sum: time.Duration(h.nanos.Load()).Seconds(), Buckets: map[float64]uint64{}}
	for i := range h.buckets {
		s.Count += h.buckets[i].Load()
		if i < len(secondsBounds) {
			s.Buckets[secondsBounds[i].Seconds()] = s.Count
		}
	}
	return s
}

// reasons are all that Mqrun-Reason can say.
var reasons = [...]string{
	reasonRejected, reasonRetry, reasonCode, reasonPublish, reasonCrash, reasonMaxDeliveries, reasonTerminated,
	"trap", "timeout", "fuel", "memory", "forbidden", "emit", "limit", "exit", "abi", "expired",
}

// tally counts dead letters by their reason.
type tally [len(reasons) + 1]atomic.Int64 // the last: a word that is none of them

func (t *tally) add(reason string) {
	for i, r := range reasons {
		if r == reason {
			t[i].Add(1)
			return
		}
	}
	t[len(reasons)].Add(1)
}

func (c *counts) died(reason string) {
	c.dead.Add(1)
	c.deadBy.add(reason)
}

func (t *tally) snapshot() map[string]int64 {
	m := map[string]int64{}
	for i := range t {
		if n := t[i].Load(); n > 0 && i < len(reasons) {
			m[reasons[i]] = n
		} else if n > 0 {
			m["other"] = n
		}
	}
	return m
}

// Pending is how many messages wait in the streams of each pipeline, by name.
// It asks the server. A pipeline that another process runs by `commit: batch` is
// not in it.
func (m *Manager) Pending(ctx context.Context) map[string]uint64 {
	pending := map[string]uint64{}
	for _, e := range m.running() {
		var name string
		consumers := map[string]string{} // with their streams
		switch p := e.(type) {
		case *pipeline, *parted:
			for _, p := range pipelines(e) {
				name = p.name
				for _, src := range p.sources {
					consumers[src.stream+" "+src.consumer] = src.stream
				}
			}
		case *batch:
			t := p.current()
			if t == nil {
				continue
			}
			t.mu.Lock()
			name, consumers[t.in.stream+" "+t.consumer] = p.name, t.in.stream
			t.mu.Unlock()
		}
		n, ok := uint64(0), true
		for place, stream := range consumers {
			c, err := m.broker.js.Consumer(ctx, stream, strings.TrimPrefix(place, stream+" "))
			if err != nil {
				ok = false
				break
			}
			n += c.CachedInfo().NumPending
		}
		if ok {
			pending[name] = n
		}
	}
	return pending
}
