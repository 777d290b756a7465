package pipeline

import (
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

type state uint8

const (
	free       state = iota
	waiting          // delivered, no worker has it yet
	delayed          // of an ordered pipeline: failed, and waits in place for its next attempt
	running          // in a worker
	publishing       // outputs, attempt record or dead letter are on their way
	settling         // all of them are confirmed, the ack or nak is on its way
)

// slot is the in-flight state of one message: no goroutine, channel or timer
// of its own. Replies find it by index; the term tells a late reply for an
// earlier message in the same slot.
type slot struct {
	index int

	mu    sync.Mutex
	epoch uint32 // counts the messages that it held
	// term is part of the reply subjects. It only moves on when a second answer
	// may still come, because something was sent twice: the server keeps the
	// subjects that it has matched, and new ones for every message would cost it
	// a tenth of its time.
	term  uint32
	twice bool
	state state

	src     *source
	ident   *identity // of src when the message came
	known   bool      // it may have come before, from a consumer that is gone
	msg     *nats.Msg
	reply   string // ack subject of its latest delivery
	info    mq.AckInfo
	subject string // what the guest sees: of a replayed message its original one
	bytes   int64
	chain   *chain
	results []*host.Result // arenas of the outputs, alive until they are confirmed

	clock   time.Time // when the server's ack clock was last set, as far as we know
	pubs    []publish
	left    int    // pubs without a PubAck
	stored  bool   // one of pubs may be stored: this message is never nak'd now
	final   []byte // the ack or nak
	sent    time.Time
	tries   int
	orphan  func() // the server gave the message up; told when it is not acked after all
	stuck   bool   // counted in pipeline.stuck
	attempt int
	verdict verdict
	judged  bool   // verdict holds; else the message was given back
	epitaph string // the line to log once the dead letter is settled

	// Of an ordered pipeline:
	lane   *lane     // where it stands in line
	due    time.Time // once pubs are confirmed it is held until then
	armed  bool      // a timer wakes it
	before failures  // as recorded at its last attempt here

	// Memory that is used again for the next message.
	walk  walk
	out   nats.Msg
	arena arena
}

// publish is one message that must be stored before the slot's final word.
type publish struct {
	subject string
	header  nats.Header
	data    []byte
	id      [1]string // what the header's id points to

	ok    bool
	tries int       // refusals in a row
	sent  time.Time // zero: to be sent at due
	due   time.Time
	err   string
}

// add gives room for one more publish, with the header map of an earlier one.
func (s *slot) add() *publish {
	if len(s.pubs) < cap(s.pubs) {
		s.pubs = s.pubs[:len(s.pubs)+1]
	} else {
		s.pubs = append(s.pubs, publish{})
	}
	p := &s.pubs[len(s.pubs)-1]
	h := p.header
	clear(h)
	*p = publish{header: h}
	if h == nil {
		p.header = make(nats.Header, 2)
	}
	return p
}

// keepPubs bounds the memory that a slot keeps after a message with many
// outputs.
const keepPubs = 16

// rewind drops what belonged to the last attempt: what is answered to it now
// finds nobody.
func (s *slot) rewind() {
	for i := range s.pubs {
		s.pubs[i].data, s.pubs[i].id = nil, [1]string{}
		clear(s.pubs[i].header)
	}
	s.pubs = s.pubs[:0]
	if cap(s.pubs) > keepPubs {
		s.pubs = nil
	}
	s.walk.reset()
	s.out.Header, s.out.Data = nil, nil
	s.arena = s.arena[:0]
	s.results = s.results[:0]
	s.epoch++
	if s.twice || s.left > 0 {
		s.term++
		s.twice = false
	}
	s.chain, s.final, s.left, s.tries = nil, nil, 0, 0
	s.stored, s.judged, s.verdict, s.epitaph = false, false, verdict{}, ""
}

// forget drops what belonged to the last message.
func (s *slot) forget() {
	s.rewind()
	s.state, s.src, s.ident, s.msg, s.reply, s.subject = free, nil, nil, nil, "", ""
	s.bytes, s.attempt, s.stuck, s.orphan, s.known = 0, 0, false, nil, false
	s.lane, s.due, s.armed, s.before = nil, time.Time{}, false, failures{}
}

// arena holds the short texts of one message, such as ids and reply subjects,
// without an allocation for each. They are valid until the slot is forgotten;
// the client copies what it sends.
type arena []byte

// text turns what was appended since n into a string.
func (a arena) text(n int) string {
	if n == len(a) {
		return ""
	}
	return unsafe.String(&a[n], len(a)-n)
}

// slots hands out slots by index, the one that was used last first. It grows
// with what is in flight; the credits of the pulls are its bound, give or take
// what comes for pulls that were given up.
type slots struct {
	mu   sync.Mutex
	all  []*slot
	free []*slot
}

func (t *slots) add() *slot {
	s := &slot{index: len(t.all)}
	t.all = append(t.all, s)
	return s
}

func (t *slots) take() *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		s := t.free[n-1]
		t.free = t.free[:n-1]
		return s
	}
	return t.add()
}

func (t *slots) put(s *slot) {
	t.mu.Lock()
	t.free = append(t.free, s)
	t.mu.Unlock()
}

func (t *slots) at(i int) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i < 0 || i >= len(t.all) {
		return nil
	}
	return t.all[i]
}

// holding is the slot that is still at work on a message, or nil.
func (t *slots) holding(src *source, sequence uint64) *slot {
	for _, s := range t.busy(nil) {
		s.mu.Lock()
		same := s.state != free && s.src == src && s.info.Sequence == sequence
		s.mu.Unlock()
		if same {
			return s
		}
	}
	return nil
}

// busy appends the slots that hold a message to dst.
func (t *slots) busy(dst []*slot) []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == len(t.all) {
		return dst
	}
	return append(dst, t.all...)
}
