package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// Bounds of a group. A batch costs the server about 1.4 ms whatever it holds,
// and takes 1,000 messages.
const (
	groupMessages = 900
	groupBytes    = 8 << 20
	groupWait     = 5 * time.Millisecond // for a handler that is still at work
	commitWait    = 5 * time.Second      // for the answer to a commit
)

// group is one atomic batch: entries whose messages are on the server, or on
// their way, and take effect with the checkpoint that ends it.
type group struct {
	id      string
	entries []*entry
	msgs    int
	bytes   int64
	last    uint64 // input sequence that the checkpoint will hold
	opened  time.Time
	sent    time.Time
}

// committer commits a batch pipeline's results, one group at a time. While one
// group's checkpoint is on its way, the next one's outputs already go out.
type committer struct {
	p     *tenure
	inbox string
	sub   *nats.Subscription
	acks  chan *nats.Msg
	wake  chan struct{}
	quit  chan struct{}
	done  sync.WaitGroup

	// Of the loop alone.
	ckpt         checkpoint
	open, flying *group
	wait         time.Duration // back-off after a refusal
	retryAt      time.Time
	header       nats.Header // of the message that is being sent
	values       [2]string
	out          nats.Msg

	mu        sync.Mutex
	blockedBy string
	drained   chan struct{}
}

func newCommitter(p *tenure, ckpt checkpoint) (*committer, error) {
	c := &committer{
		p: p, ckpt: ckpt, inbox: nats.NewInbox(), acks: make(chan *nats.Msg, 16),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), header: nats.Header{},
	}
	var err error
	c.sub, err = p.broker.out.ChanSubscribe(c.inbox+".*", c.acks)
	return c, err
}

func (c *committer) start() { c.done.Go(c.loop) }

func (c *committer) stop() {
	close(c.quit)
	c.done.Wait()
	_ = c.sub.Unsubscribe()
}

// nudge makes the loop look for results.
func (c *committer) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) blocked(why string) {
	c.mu.Lock()
	first := c.blockedBy != why
	c.blockedBy = why
	c.mu.Unlock()
	if first && why != "" {
		c.p.log.Warn("blocked", "error", why)
	}
}

func (c *committer) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blockedBy
}

// drain waits until everything is committed and reports whether it is.
func (c *committer) drain(ctx context.Context) bool {
	drained := make(chan struct{})
	c.mu.Lock()
	c.drained = drained
	c.mu.Unlock()
	c.nudge()
	select {
	case <-drained:
		return true
	case <-c.p.gone: // others do what is left
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *committer) loop() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	lost := c.p.broker.link.lost()
	for {
		now := time.Now()
		if c.fill(now) {
			c.send(now)
		}
		if c.open == nil && c.flying == nil && !c.p.more() {
			c.mu.Lock()
			if c.drained != nil {
				close(c.drained)
				c.drained = nil
			}
			c.mu.Unlock()
		}
		t.Reset(c.next(now))
		select {
		case m := <-c.acks:
			c.answer(m)
		case <-c.wake:
		case <-lost:
			lost = c.p.broker.link.lost()
			if c.flying != nil && c.retryAt.IsZero() {
				c.doubt("the connection was cut")
			}
		case now := <-t.C:
			c.late(now)
		case <-c.quit:
			return
		}
	}
}

// next is how long the loop may sleep.
func (c *committer) next(now time.Time) time.Duration {
	d := time.Hour
	if c.flying != nil {
		d = min(d, c.flying.sent.Add(commitWait).Sub(now))
	} else if c.open != nil {
		d = min(d, c.open.opened.Add(groupWait).Sub(now))
	}
	if !c.retryAt.IsZero() {
		d = c.retryAt.Sub(now)
	}
	return max(d, 0)
}

// fill adds what has ended to the open group, and reports whether the group is
// to be committed now: nothing is on its way, and it is full, or nothing else
// is in work, or a handler has kept it waiting long enough.
func (c *committer) fill(now time.Time) bool {
	full := false
	for {
		e := c.p.take(func(e *entry) bool {
			if c.open == nil {
				return true
			}
			full = c.open.msgs+messages(e) >= groupMessages || c.open.bytes+e.bytes > groupBytes || len(c.open.entries) >= groupMessages
			return !full
		})
		if e == nil {
			break
		}
		if c.open == nil {
			c.open = &group{id: nuid.Next(), opened: now, last: c.lastSequence()}
		}
		c.add(c.open, e)
	}
	return c.open != nil && c.flying == nil && c.retryAt.IsZero() && (full || !c.p.more() || now.Sub(c.open.opened) >= groupWait)
}

func (c *committer) lastSequence() uint64 {
	if c.flying != nil {
		return c.flying.last
	}
	return c.ckpt.Sequence
}

// messages is how many messages an entry puts into a batch.
func messages(e *entry) int {
	n := len(e.outs)
	if e.parked || e.v.action == actNak {
		n++
	}
	return n
}

func (c *committer) add(g *group, e *entry) {
	g.entries = append(g.entries, e)
	g.bytes += e.bytes
	if !e.parked {
		g.last = e.info.Sequence
	}
	for i := range e.outs {
		// No id: one duplicate would make the server refuse the batch, and the
		// checkpoint says what is stored.
		o := &e.outs[i]
		clear(c.header)
		outputHeader(c.header, e.msg.Header, o.Header)
		c.out = nats.Msg{Subject: o.Subject, Header: c.header, Data: o.Data}
		c.publish(g, &c.out)
	}
	switch {
	case e.v.action == actNak:
		c.publish(g, parkedMsg(c.p.parkAt, &e.slot, e.failed+1, e.due))
	case e.parked:
		c.publish(g, doneMsg(c.p.parkAt, e.info.Sequence))
	}
}

// publish sends a message of a group. An error shows at the commit: the batch
// has a gap then.
func (c *committer) publish(g *group, m *nats.Msg) {
	g.msgs++
	c.values = [2]string{g.id, strconv.Itoa(g.msgs)}
	m.Header["Nats-Batch-Id"], m.Header["Nats-Batch-Sequence"] = c.values[:1], c.values[1:]
	if err := c.p.broker.out.PublishMsg(m); err != nil {
		c.p.log.Debug("publish in a batch", "error", err)
	}
}

// send ends the open group with its checkpoint.
func (c *committer) send(now time.Time) {
	g := c.open
	m, err := c.ckpt.message(g.last, g.id)
	if err != nil {
		c.p.log.Error("checkpoint", "error", err)
		return
	}
	m.Header["Nats-Batch-Commit"] = []string{"1"}
	m.Reply = c.inbox + "." + g.id
	c.open, c.flying = nil, g
	g.sent = now
	c.publish(g, m)
}

// answer takes the server's word on the group on its way.
func (c *committer) answer(m *nats.Msg) {
	g := c.flying
	if g == nil || m.Subject != c.inbox+"."+g.id {
		return
	}
	if why := pubAckError(m); why != "" {
		c.resolve(why)
		return
	}
	var ack struct {
		Sequence uint64 `json:"seq"`
		Count    int    `json:"count"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Count != g.msgs {
		c.resolve(fmt.Sprintf("answer %q not understood", m.Data))
		return
	}
	c.stored(ack.Sequence)
}

// stored moves on behind the group whose checkpoint has the sequence fence.
func (c *committer) stored(fence uint64) {
	g := c.flying
	c.ckpt.fence, c.ckpt.Sequence = fence, g.last
	c.flying, c.wait, c.retryAt = nil, 0, time.Time{}
	c.blocked("")
	c.p.committed(g.entries)
}

// late acts on a commit without an answer, and on a refusal whose time to try
// again has come.
func (c *committer) late(now time.Time) {
	switch {
	case c.flying == nil:
	case !c.retryAt.IsZero() && !now.Before(c.retryAt):
		c.resolve("")
	case c.retryAt.IsZero() && now.Sub(c.flying.sent) >= commitWait:
		c.resolve("no answer to the commit")
	}
}

// resolve finds out what became of a commit that was refused or not answered:
// it is never sent again blindly. The checkpoint tells: ours, it is stored;
// another one, somebody else has taken over; the old one, it is not stored.
func (c *committer) resolve(why string) {
	if why != "" {
		c.p.counts.publishRefused.Add(1)
		c.doubt(why)
		return
	}
	g := c.flying
	ctx, cancel := c.p.broker.link.within(c.p.work, commitWait)
	defer cancel()
	have, err := readCheckpoint(ctx, c.p.broker.ask, c.p.out, c.ckpt.subject)
	switch {
	case err != nil:
		c.resolve(err.Error())
	case have.fence == c.ckpt.fence:
		c.again(g)
	case have.Batch == g.id:
		c.stored(have.fence)
	default:
		c.zombie(have)
	}
}

// doubt puts off a group until it may be known what became of it.
func (c *committer) doubt(why string) {
	c.wait = min(max(2*c.wait, refusedFirst), refusedMost)
	c.retryAt = time.Now().Add(c.wait)
	c.blocked("commit: " + why)
}

// again sends a group that is not stored, as a new batch, and the open one
// after it: the server may have dropped both meanwhile.
func (c *committer) again(g *group) {
	open := c.open
	c.flying, c.retryAt = nil, time.Time{}
	next := &group{id: nuid.Next(), opened: time.Now(), last: c.ckpt.Sequence}
	for _, e := range g.entries {
		c.add(next, e)
	}
	c.open = next
	c.send(time.Now())
	if open == nil {
		return
	}
	c.open = &group{id: nuid.Next(), opened: time.Now(), last: next.last}
	for _, e := range open.entries {
		c.add(c.open, e)
	}
}

// zombie ends the tenure: the checkpoint was moved by somebody else, and what
// is in work here is theirs.
func (c *committer) zombie(have checkpoint) {
	c.retryAt = time.Now().Add(time.Hour)
	c.p.fail(fmt.Errorf("somebody else has committed up to %d of %s (this one: %d)", have.Sequence, have.Stream, c.ckpt.Sequence))
}
