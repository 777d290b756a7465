package pipeline

import (
	"context"
	"sync"
	"time"
)

// gate lets the handlers of one pipeline in side by side, or one alone.
type gate struct {
	mu    sync.Mutex
	cond  sync.Cond
	in    int
	alone int // that run or wait to run alone
}

func newGate() *gate {
	g := &gate{}
	g.cond.L = &g.mu
	return g
}

// enter waits until what is in work allows it. Who is alone comes first: else
// a busy pipeline would never let it in.
func (g *gate) enter(alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !alone {
		for g.alone > 0 {
			g.cond.Wait()
		}
		g.in++
		return
	}
	g.alone++
	for g.in > 0 {
		g.cond.Wait()
	}
	g.in++
}

func (g *gate) leave(alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in--
	if alone {
		g.alone--
	}
	if g.in == 0 {
		g.cond.Broadcast()
	}
}

// run takes the message through the steps, with its name in the crash journal.
// One that was there when the process ended before runs alone in its pipeline,
// and one such message at a time in the process: when it ends again, there is
// no doubt which message did it.
func (p *walker) run(ctx context.Context, w *walk) error {
	alone := w.before.Crashes >= crashesAlone
	if alone {
		if err := p.broker.suspects.take(ctx); err != nil {
			return errCancelled
		}
		defer p.broker.suspects.put()
	}
	p.gate.enter(alone)
	defer p.gate.leave(alone)
	if alone {
		p.log.Warn("message runs alone: the process ended with it in work before", "stream", w.s.src.stream, "sequence", w.s.info.Sequence, "crashes", w.before.Crashes)
	}
	w.rec = p.broker.journal.begin(w.s.ident, w.s.info.Sequence)
	defer p.broker.journal.end(w.rec)
	begun := time.Now()
	defer func() { p.seconds.observe(time.Since(begun)) }()
	return w.run(ctx)
}

// turn is held by one at a time.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) put() { <-t }
