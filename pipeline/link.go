package pipeline

import (
	"context"
	"sync"
	"time"
)

// link ends the wait for answers that were lost with a connection: the client
// would wait for them until the time is over.
type link struct {
	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // of the connection
	end context.CancelFunc
}

func newLink() *link {
	l := &link{}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// cut says that the connection is another one now.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.ctx, l.end = context.WithCancel(context.Background())
}

// lost is closed when what was sent since has no answer any more.
func (l *link) lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx.Done()
}

// within is for one request.
func (l *link) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(l.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}
