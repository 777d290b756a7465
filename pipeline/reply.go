package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/mq"
)

// reply takes PubAcks and confirmations to their slots.
func (p *pipeline) reply(m *nats.Msg) {
	if len(m.Subject) <= len(p.inbox) {
		return
	}
	rest := m.Subject[len(p.inbox)+1:]
	if look, ok := strings.CutPrefix(rest, lookToken+"."); ok {
		if n, _, ok := number(look); ok && n < len(p.sources) {
			p.looked(p.sources[n], m.Data)
		}
		return
	}
	index, rest, ok1 := number(rest)
	term, rest, ok2 := number(rest)
	k, _, ok3 := number(rest)
	if !ok1 || !ok2 || !ok3 {
		return
	}
	s := p.slots.at(index)
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.term != uint32(term) {
		s.mu.Unlock()
		return // a second answer to what was sent twice
	}
	i := k - 1
	if i == finalWord {
		p.confirmed(s, m)
		return
	}
	defer s.mu.Unlock()
	if i >= len(s.pubs) || s.state != publishing || s.pubs[i].ok {
		return
	}
	pub := &s.pubs[i]
	if why := pubAckError(m); why != "" {
		if why == noStream {
			p.broker.missing()
		}
		p.refused(s, pub, why, p.now())
		return
	}
	pub.ok, s.stored = true, true
	s.left--
	if pub.tries > 0 {
		p.unblock(s)
	}
	if s.left == 0 {
		p.finish(s, p.now())
	}
}

// number reads the first token of a reply subject; rest is behind it.
func number(s string) (n int, rest string, ok bool) {
	for i := range len(s) {
		if s[i] == '.' {
			return n, s[i+1:], i > 0
		}
		d := s[i] - '0'
		if d > 9 || n > math.MaxInt32 {
			return 0, "", false
		}
		n = 10*n + int(d)
	}
	return n, "", s != ""
}

// unblock counts a slot out of the stuck ones once none of its publishes is
// refused any more. s.mu is held.
func (p *pipeline) unblock(s *slot) {
	for i := range s.pubs {
		if !s.pubs[i].ok && s.pubs[i].tries > 0 {
			return
		}
	}
	if !s.stuck {
		return
	}
	s.stuck = false
	p.mu.Lock()
	p.stuck--
	clear := p.stuck == 0
	if clear {
		p.why = ""
	}
	p.throttle()
	p.mu.Unlock()
	if clear {
		p.log.Info("no longer blocked")
	}
}

// confirmed ends a slot whose final word the server has answered. s.mu is
// held and released.
func (p *pipeline) confirmed(s *slot, m *nats.Msg) {
	if s.state != settling {
		s.mu.Unlock()
		return
	}
	var lost *source
	if m.Header.Get("Status") == "503" {
		// An ack without a consumer is as good as one: see mark.
		lost = s.src
	} else {
		p.count(s)
	}
	orphan := s.orphan
	if isAck(s.final) {
		orphan = nil
	}
	id, sequence := s.ident, s.info.Sequence
	s.mu.Unlock()
	p.attempts.forget(id, sequence)
	p.done(s)
	if lost != nil {
		p.sourceLost(lost, fmt.Errorf("%w: %s > %s: nobody answers acks", mq.ErrConsumerLost, lost.stream, lost.consumer))
	}
	if orphan != nil {
		orphan()
	}
}

// abandon frees a slot whose message was of a stream that is gone: its outputs
// are stored, and an ack would hit a message of the stream that has its name.
func (p *pipeline) abandon(s *slot, epoch uint32) {
	s.mu.Lock()
	if s.state != settling || s.epoch != epoch {
		s.mu.Unlock()
		return
	}
	p.count(s)
	s.mu.Unlock()
	p.done(s)
}

const noStream = "no stream holds the subject"

// pubAckError is why a publish was not stored, or "". A scan is enough: a
// stream's name cannot hold a quote and a colon follows only a key.
func pubAckError(m *nats.Msg) string {
	if m.Header.Get("Status") == "503" {
		return noStream
	}
	if !bytes.Contains(m.Data, []byte(`"error":`)) {
		return ""
	}
	var ack struct {
		Error struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return "answer not understood: " + err.Error()
	}
	return fmt.Sprintf("%s (%d)", ack.Error.Description, ack.Error.Code)
}
