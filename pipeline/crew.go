package pipeline

import (
	"runtime"
	"sync"
)

// crew is the workers of an engine: they take what is queued until quit is
// closed. How many they are may change while they work.
type crew[T any] struct {
	queue   chan T
	quit    chan struct{}
	workers sync.WaitGroup // and all else that ends with quit
	do      func(T)

	sizing sync.Mutex
	wanted int
	there  int
}

// staff makes n workers, or as many as cores when n is 0.
func (c *crew[T]) staff(n int) {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	c.sizing.Lock()
	defer c.sizing.Unlock()
	for c.wanted = n; c.there < n; c.there++ {
		c.workers.Go(c.worker)
	}
}

func (c *crew[T]) enqueue(x T) { c.queue <- x }

func (c *crew[T]) worker() {
	for {
		select {
		case x := <-c.queue:
			c.do(x)
		case <-c.quit:
			return
		}
		if c.surplus() {
			return
		}
	}
}

// surplus reports whether the worker that asks is one too many.
func (c *crew[T]) surplus() bool {
	c.sizing.Lock()
	defer c.sizing.Unlock()
	if c.there <= c.wanted {
		return false
	}
	c.there--
	return true
}
