package pipeline

import (
	"context"
	"fmt"
	"time"
)

// drain stops pulling and waits until everything in flight is settled. After
// patience, messages that no worker has begun are given back, so that others
// get them. When ctx ends first, guests are stopped and their messages
// given back too; the error says how many.
func (p *pipeline) drain(ctx context.Context, patience time.Duration) error {
	// What fails now would be held for its delay; the next to run has it back
	// at once, and in order.
	release := patience <= 0 || p.lanes != nil
	p.mu.Lock()
	p.releasing, p.leaving = p.releasing || release, true
	parked := p.parked
	p.parked, p.called = nil, false
	p.mu.Unlock()
	for _, s := range parked {
		p.release(s)
	}
	for _, src := range p.sources {
		if err := src.pull.Stop(); err != nil {
			p.log.Warn("stop pulling", "stream", src.stream, "error", err)
		}
	}
	if release {
		p.letGo()
	} else {
		defer time.AfterFunc(patience, p.letGo).Stop()
	}
	p.mu.Lock()
	p.draining = true
	n := p.inFlight
	if n == 0 {
		p.closeEmpty()
	}
	p.mu.Unlock()
	var err error
	select {
	case <-p.empty:
	case <-ctx.Done():
		p.mu.Lock()
		err = fmt.Errorf("drain pipeline %s: %d messages were not done in time and are given back", p.name, p.inFlight)
		p.mu.Unlock()
		p.letGo()
		p.abort()
		select {
		case <-p.empty:
		case <-time.After(2 * time.Second): // acks that the server does not confirm
		}
	}
	p.close()
	return err
}

func (p *pipeline) close() {
	p.mu.Lock()
	p.leaving = true
	p.mu.Unlock()
	p.abort()
	if p.lanes != nil {
		p.retire()
		p.leading.Wait()
	}
	for _, src := range p.sources {
		_ = src.pull.Stop()
	}
	close(p.quit)
	p.workers.Wait()
	for _, src := range p.sources {
		p.remember(src)
	}
	if p.replies != nil {
		_ = p.replies.Unsubscribe()
	}
	p.chain.retire()
}

// finalWord is the k of a slot's ack or nak.
const finalWord = -1

// letGo gives back all that no worker has begun, and all that comes from now
// on.
func (p *pipeline) letGo() {
	p.mu.Lock()
	p.releasing = true
	slots := p.parked
	p.parked, p.called = nil, false
	for _, src := range p.sources {
		if src.back != nil {
			slots = append(slots, src.back.slots...)
			src.back = nil
		}
	}
	p.mu.Unlock()
	if p.lanes != nil {
		slots = append(slots, p.lanes.clear()...)
	}
	for _, s := range slots {
		p.release(s)
	}
	for {
		select {
		case s := <-p.queue:
			p.release(s)
		default:
			return
		}
	}
}

func (p *pipeline) closeEmpty() {
	select {
	case <-p.empty:
	default:
		close(p.empty)
	}
}
