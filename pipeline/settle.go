package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/config"
)

// Timers of the settlement. A PubAck or confirmation can be lost with its
// connection, so everything is sent again until the server has answered:
// publishes carry ids and acks are idempotent.
const (
	pubAckWait   = 5 * time.Second
	confirmWait  = 2 * time.Second
	refusedFirst = 50 * time.Millisecond
	refusedMost  = 5 * time.Second
)

var (
	ackBody      = []byte("+ACK")
	progressBody = []byte("+WPI")
)

func isAck(final []byte) bool { return bytes.Equal(final, ackBody) }

func nakBody(delay time.Duration) []byte {
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds())
}

func random() float64 { return rand.Float64() }

// settle turns a verdict into what must be stored first and the word that
// ends the delivery.
func (p *pipeline) settle(s *slot, w *walk, v verdict) {
	p.mu.Lock()
	p.bytes += w.bytes
	p.mu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.final, s.verdict, s.judged = publishing, ackBody, v, true
	s.bytes += w.bytes
	s.due, s.before = time.Time{}, failures{}
	switch v.action {
	case actAck:
		for i := range w.outs {
			o := &w.outs[i]
			pub := s.add()
			pub.subject, pub.data = o.Subject, o.Data
			outputHeader(pub.header, s.msg.Header, o.Header)
			p.identify(s, pub, o.path)
		}
	case actNak:
		s.final = nakBody(v.delay)
		p.recordAttempt(s, w, v)
	case actDead:
		p.bury(s, w, v)
	}
	s.left = len(s.pubs)
	now := p.now()
	for k := range s.pubs {
		p.send(s, k, now)
	}
	if s.left == 0 {
		p.finish(s, now)
	}
}

// identify gives a publish its id.
func (p *pipeline) identify(s *slot, pub *publish, path string) {
	n := len(s.arena)
	s.arena = s.ident.appendID(s.arena, s.info.Sequence, path)
	pub.id[0] = s.arena.text(n)
	pub.header[hdrMsgID] = pub.id[:]
}

// recordAttempt adds the record of a failed attempt to what must be stored.
func (p *pipeline) recordAttempt(s *slot, w *walk, v verdict) {
	f := failures{Failed: s.attempt, Reason: v.reason, Error: w.text, Crashes: w.before.Crashes, Run: w.before.Run}
	if p.lanes != nil { // it is tried again in place
		f.Due = p.now().Add(v.delay)
		s.due, s.before = f.Due, f
	}
	rec, err := p.attempts.record(p.attempts.key(s.ident, s.info.Sequence), f)
	if err != nil {
		p.log.Error("attempt not recorded", "error", err)
	} else {
		pub := s.add()
		pub.subject, pub.data = rec.subject, rec.data
	}
	p.log.Warn(fmt.Sprintf("%s; attempt %d of %d, next in %v", w.describe(v.reason), s.attempt, s.chain.cfg.Retry.Attempts, v.delay.Round(time.Millisecond)), "step", w.step.name)
}

// bury adds the dead letter to what must be stored.
func (p *pipeline) bury(s *slot, w *walk, v verdict) {
	to := s.chain.cfg.DeadLetter
	if to == config.DeadLetterNone {
		s.epitaph = w.describe(v.reason) + "; dead letter to nowhere (dead_letter: none)"
		return
	}
	s.epitaph = w.describe(v.reason) + "; dead letter to " + to
	pub := s.add()
	pub.subject = to
	pub.header, pub.data = deadLetter(p.key, s, w.dead(v, p.now()), p.broker.limit(to))
	p.identify(s, pub, "dlq")
}

// count notes what became of a message once it is settled.
func (p *pipeline) count(s *slot) {
	if !s.judged {
		return
	}
	switch s.verdict.action {
	case actAck:
		p.counts.acked.Add(1)
		p.counts.outputs.Add(int64(len(s.pubs)))
		if s.verdict.filtered {
			p.counts.filtered.Add(1)
		}
	case actNak:
		p.counts.naked.Add(1)
	case actDead:
		p.counts.died(s.verdict.reason)
		level := slog.LevelWarn
		if s.chain.cfg.DeadLetter == config.DeadLetterNone {
			level = slog.LevelError
		}
		p.log.Log(context.Background(), level, s.epitaph, "attempts", s.attempt)
	}
}

// dead says why the message is given up.
func (w *walk) dead(v verdict, now time.Time) dead {
	return dead{
		reason: v.reason, text: w.text, code: w.out.code, returned: w.out.failure == "", exhausted: v.exhausted, step: w.step.name, plugin: w.step.plugin,
		generation: w.s.chain.generation, attempts: w.s.attempt, log: w.log, at: now,
	}
}

// describe is the line for people: which message failed how.
func (w *walk) describe(reason string) string {
	if w.whole {
		return w.text
	}
	line := fmt.Sprintf("%s: message %d of %s: %s", w.step.name, w.s.info.Sequence, w.s.src.stream, reason)
	if w.text != "" {
		line += ": " + w.text
	}
	return line
}

// giveBack naks a message that no handler judged: no attempt is counted.
func (p *pipeline) giveBack(s *slot, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.giveBackLocked(s, delay)
}

func (p *pipeline) giveBackLocked(s *slot, delay time.Duration) {
	s.state, s.final, s.judged, s.due = publishing, nakBody(delay), false, time.Time{}
	p.finish(s, p.now())
}

// release gives back a message that no worker has begun.
func (p *pipeline) release(s *slot) { p.giveBack(s, minDelay) }

// send publishes the k-th message of a slot. s.mu is held.
func (p *pipeline) send(s *slot, k int, now time.Time) {
	pub := &s.pubs[k]
	if p.fenced(now) {
		return // the keeper forsakes it
	}
	s.twice = s.twice || !pub.sent.IsZero()
	s.out = nats.Msg{Subject: pub.subject, Reply: p.replySubject(s, k), Header: pub.header, Data: pub.data}
	if err := p.broker.out.PublishMsg(&s.out); err != nil {
		p.refused(s, pub, err.Error(), now)
		return
	}
	pub.sent = now
}

// refused schedules a publish again. s.mu is held.
func (p *pipeline) refused(s *slot, pub *publish, why string, now time.Time) {
	p.counts.publishRefused.Add(1)
	pub.due = now.Add(min(refusedFirst<<min(pub.tries, 10), refusedMost))
	pub.tries++
	pub.sent, pub.err = time.Time{}, fmt.Sprintf("publish to %s: %s", pub.subject, why)
	if s.stuck {
		return
	}
	s.stuck = true
	p.mu.Lock()
	first := p.stuck == 0 // later reasons are in the status
	p.stuck++
	p.why = pub.err
	p.throttle()
	p.mu.Unlock()
	if first {
		p.log.Warn("blocked", "stream", s.src.stream, "sequence", s.info.Sequence, "error", pub.err)
	}
}

// finish sends the ack or nak as a request, so that the server confirms it. Who
// stands in line behind the message may begin. s.mu is held.
func (p *pipeline) finish(s *slot, now time.Time) {
	if s.state != settling {
		if !s.due.IsZero() {
			p.hold(s)
			return
		}
		if p.lanes != nil {
			if next := p.lanes.pop(s); next != nil {
				p.queue <- next
			}
		}
		s.state = settling
		if now.Sub(s.clock) > p.ackWait(s) {
			p.counts.lateAcks.Add(1)
		}
	}
	s.sent = now
	if s.ident.gone.Load() {
		epoch := s.epoch
		time.AfterFunc(0, func() { p.abandon(s, epoch) })
		return
	}
	s.tries++
	s.twice = s.twice || s.tries > 1
	if err := p.broker.out.PublishRequest(s.reply, p.replySubject(s, finalWord), s.final); err != nil {
		p.log.Debug("settle again later", "stream", s.src.stream, "sequence", s.info.Sequence, "error", err)
	}
}

func (p *pipeline) ackWait(s *slot) time.Duration {
	if s.chain != nil {
		return s.chain.cfg.AckWait
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chain.cfg.AckWait
}
