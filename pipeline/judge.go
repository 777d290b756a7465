package pipeline

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
)

// handle takes one message through the steps and leaves its result for the
// committer.
func (p *tenure) handle(e *entry) {
	p.mu.Lock()
	b := p.breaker
	if !p.dropped(e) && !p.admitted(e) {
		e.held = true
		if !p.draining {
			p.parked = append(p.parked, e)
			p.mu.Unlock()
			return
		}
		p.cut()
	}
	c := p.chain.pick(e.info.Sequence, e.failed > 0)
	for !p.dropped(e) && !c.enter() { // swapped at this very moment
		p.mu.Unlock()
		runtime.Gosched()
		p.mu.Lock()
		c = p.chain.pick(e.info.Sequence, e.failed > 0)
	}
	if p.dropped(e) {
		p.mu.Unlock()
		p.committer.nudge()
		return
	}
	e.begun, e.held, e.chain = true, false, c
	if e.parked {
		p.trying++
	}
	p.mu.Unlock()
	judged := b == nil
	defer func() {
		if !judged {
			p.withdraw(b, e)
		}
	}()
	before, err := p.attempts.of(p.work, p.src.ident, e.info.Sequence, 1)
	if err != nil {
		p.log.Warn("attempts unknown", "sequence", e.info.Sequence, "error", err)
	}
	e.attempt = e.failed + before.Crashes + 1
	w := &e.walk
	w.pipe, w.s, w.before = p.walker, &e.slot, before
	if exhausted := e.attempt > c.cfg.Retry.Attempts; exhausted || before.Crashes >= crashesDead {
		e.attempt--
		w.step = &c.steps[min(before.Step, len(c.steps)-1)]
		w.out.failure, w.text = before.Reason, before.Error
		c.leave()
		p.judge(e, w, verdict{action: actDead, reason: before.Reason, exhausted: exhausted})
		return
	}
	p.counts.handled.Add(1)
	err = p.run(p.work, w)
	c.leave()
	if err != nil {
		if !errors.Is(err, errCancelled) { // it was not the message's fault
			p.log.Error("message handled again later", "stream", p.in.stream, "sequence", e.info.Sequence, "error", err)
			p.putBack(e)
			p.workers.Go(func() { p.later(e) })
		}
		return // the checkpoint stays before it
	}
	if len(w.outs) >= groupMessages {
		w.fail(&c.steps[len(c.steps)-1], outcome{failure: host.ReasonLimit}, fmt.Sprintf("%d outputs; with commit: batch one message may have %d", len(w.outs), groupMessages-1))
	}
	v := decide(w.out, e.attempt, c.cfg.Retry, p.rnd())
	w.told(v)
	if !judged {
		judged = true
		if p.tell(b, e, w, v) > 0 {
			p.putBack(e)
			p.enqueue(e) // where the breaker holds it
			return
		}
	}
	p.judge(e, w, v)
}

// putBack forgets an attempt that does not count.
func (p *tenure) putBack(e *entry) {
	for _, r := range e.results {
		p.results.Put(r)
	}
	e.rewind()
	p.mu.Lock()
	defer p.mu.Unlock()
	e.begun, e.held = false, true
	if e.parked {
		p.trying--
	}
	if p.draining {
		p.cut()
	}
}

// judge leaves a verdict for the committer; a dead letter is stored first.
func (p *tenure) judge(e *entry, w *walk, v verdict) {
	e.v, e.outs = v, w.outs
	switch v.action { //nolint:exhaustive // nothing else asks for anything
	case actNak:
		e.due = p.now().Add(e.v.delay)
		p.log.Warn(fmt.Sprintf("%s; attempt %d of %d, next in %v", w.describe(e.v.reason), e.attempt, e.chain.cfg.Retry.Attempts, e.v.delay.Round(time.Millisecond)), "step", w.step.name)
	case actDead:
		if to := e.chain.cfg.DeadLetter; to != "none" {
			h, data := deadLetter(p.key, &e.slot, w.dead(e.v, p.now()), p.broker.limit(to))
			h[hdrMsgID] = []string{p.src.ident.id(e.info.Sequence, "dlq")}
			p.workers.Go(func() { p.bury(e, &nats.Msg{Subject: to, Header: h, Data: data}, w.describe(e.v.reason)) })
			return
		}
		p.log.Error(w.describe(e.v.reason)+"; dead letter to nowhere (dead_letter: none)", "step", w.step.name)
	}
	p.ended(e, w.bytes)
}

// later puts a message that the host could not handle back to the workers.
func (p *tenure) later(e *entry) {
	select {
	case <-time.After(time.Second):
	case <-p.quit:
		return
	}
	select {
	case p.queue <- e:
	case <-p.quit:
	}
}

// bury stores a dead letter before the group of its message can commit.
func (p *tenure) bury(e *entry, m *nats.Msg, line string) {
	for wait := refusedFirst; ; wait = min(2*wait, refusedMost) {
		ctx, cancel := p.broker.link.within(p.work, pubAckWait)
		r, err := p.broker.out.RequestMsgWithContext(ctx, m)
		cancel()
		var why string
		if err != nil {
			why = err.Error()
		} else {
			why = pubAckError(r)
		}
		if why == "" {
			break
		}
		p.counts.publishRefused.Add(1)
		p.committer.blocked("publish to " + m.Subject + ": " + why)
		select {
		case <-time.After(wait):
		case <-p.quit:
			return
		}
	}
	p.log.Warn(line+"; dead letter to "+m.Subject, "attempts", e.attempt)
	p.ended(e, 0)
}

// ended leaves a result for the committer.
func (p *tenure) ended(e *entry, bytes int64) {
	p.mu.Lock()
	e.ended = true
	e.bytes += bytes
	p.bytes += bytes
	if e.parked {
		p.trying--
		p.again = append(p.again, e)
	}
	wake := e.parked || len(p.line) > 0 && p.line[0].ended
	p.throttle()
	p.mu.Unlock()
	if wake {
		p.committer.nudge()
	}
}
