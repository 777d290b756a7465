package mq

import (
	"errors"
	"time"
)

const (
	closeGrace  = 30 * time.Second // for handlers that run
	giveUpGrace = 2 * time.Second  // for them to see that their context is done
)

// use marks a call that Close has to wait for; the caller calls inUse.Done.
func (e *EmbeddedNATS) use() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.inUse.Add(1)
	return nil
}

// background runs f, and Close waits for it. It is false when Close has begun.
func (e *EmbeddedNATS) background(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.handlers.Go(f)
	return true
}

// Close stops the subscriptions, waits for handlers that run (30 s at most; the
// context of what still runs then is done) and for publishes, closes the
// connections, and then stops the server and waits for its end. Handlers may
// publish and settle until they return. After Close the store may be opened
// again. It may be called more than once and at the same time: all calls wait,
// and return the same error. A handler must not call it.
func (e *EmbeddedNATS) Close() error {
	e.once.Do(func() { e.closeErr = e.shut() })
	return e.closeErr
}

// shut ends the clients first: the server would stop JetStream before them, and
// acks on their way would be lost.
func (e *EmbeddedNATS) shut() error {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	close(e.stopping)
	if !within(closeGrace, e.handlers.Wait) {
		e.log.Warn("closing the queue while handlers still run; their messages come again")
	}
	close(e.hard)
	within(giveUpGrace, e.handlers.Wait)

	e.mu.Lock()
	e.closed = true
	conns := e.conns
	e.mu.Unlock()
	within(settleTimeout, e.inUse.Wait)

	var errs []error
	for _, nc := range conns {
		errs = append(errs, drain(nc))
	}
	if e.socket != nil {
		errs = append(errs, e.socket.close())
	}
	if e.srv != nil {
		e.srv.Shutdown()
		e.srv.WaitForShutdown()
	}
	if e.store != nil {
		errs = append(errs, e.store.close())
	}
	return errors.Join(errs...)
}

// within reports whether wait returned in time.
func within(d time.Duration, wait func()) bool {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
