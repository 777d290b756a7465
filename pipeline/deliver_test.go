package pipeline

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

// TestConfirmationAfterTheNextDelivery: a nak brings the message back before its
// confirmation is read. The slot answers for the new delivery too.
func TestConfirmationAfterTheNextDelivery(t *testing.T) {
	r := each(t, func(*host.Message, *host.Result) error { return nil })
	p := r.m.running()[0].(*pipeline)
	src := p.sources[0]
	s := p.slots.take()
	info := mq.AckInfo{Sequence: 7, Deliveries: 1}
	s.mu.Lock()
	s.state, s.src, s.ident, s.info, s.reply, s.final = settling, src, src.ident, info, "gone.1", nakBody(minDelay)
	old := p.replySubject(s, finalWord)
	s.mu.Unlock()
	info.Deliveries = 2
	if !p.stillAtWork(src, &nats.Msg{Reply: "gone.2"}, info) {
		t.Fatal("nobody has it")
	}
	p.reply(&nats.Msg{Subject: old})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != settling || s.reply != "gone.2" {
		t.Errorf("state %v, answering to %q: the answer to the first delivery ended the second", s.state, s.reply)
	}
	s.state, s.src = free, nil
}
