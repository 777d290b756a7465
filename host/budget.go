package host

import (
	"fmt"
	"sync/atomic"
)

// budget bounds the linear memory of all guests of a Runtime together.
type budget struct {
	limit   int64 // bytes; 0 = none
	used    atomic.Int64
	reclaim func(bytes int64) // asks idle instances to go until so much is free
}

// take reserves n bytes, at the cost of idle instances if need be.
func (b *budget) take(n int64) bool {
	if b.tryTake(n) {
		return true
	}
	b.reclaim(n)
	return b.tryTake(n)
}

func (b *budget) tryTake(n int64) bool {
	for {
		used := b.used.Load()
		if b.limit > 0 && used+n > b.limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// full: n bytes would pass the limit.
func (b *budget) full(n int64) bool { return b.limit > 0 && b.used.Load()+n > b.limit }

// text says how much is taken of what.
func (b *budget) text() string {
	return fmt.Sprintf("all guests together hold %s of %s (host.memory)", bytesText(b.used.Load()), bytesText(b.limit))
}
