package mq

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Pull timings. A working pull is short with a quick heartbeat, so that a lost
// request or reply costs a second at most; an idle one backs off, so that a
// thousand idle pipelines cost next to nothing.
const (
	pullExpires       = 5 * time.Second
	pullHeartbeat     = 500 * time.Millisecond
	pullIdleExpires   = 30 * time.Second
	pullIdleHeartbeat = 15 * time.Second
	idleAfter         = 3 // empty pulls in a row
)

// Errors that a Pull reports through PullConfig.Lost.
var (
	// ErrConsumerLost: the durable consumer is gone; make it again.
	ErrConsumerLost = errors.New("consumer is gone")
	// ErrPullRefused: the server refused a pull for another reason.
	ErrPullRefused = errors.New("pull refused")
)

// PullConfig says what to pull and where deliveries go.
type PullConfig struct {
	Stream, Consumer string
	// Batch is the most messages that one pull asks for. Two pulls are kept
	// outstanding at most, and never more messages than there are credits.
	Batch int
	// MaxBytes bounds one pull. It must be at least twice the largest message
	// of the stream: the server never delivers a message that is larger than
	// the limit, and holds back everything behind it without an error.
	MaxBytes int64
	// Deliver gets each message, in order, on one goroutine. It must not block.
	Deliver func(*nats.Msg)
	// Lost is told that pulls cannot go on (ErrConsumerLost, ErrPullRefused)
	// until the cause is removed. They are tried again by Tick all the same.
	Lost func(error)
}

// Pull keeps a durable consumer's messages coming: its own pull loop, because
// Consume of nats.go 1.55 can lose a wake-up between two pulls and stall for
// 30 s. All methods may be called concurrently.
//
// The owner lends it credits, one for each message it can take, and calls Tick
// several times a second.
type Pull struct {
	nc     *nats.Conn
	cfg    PullConfig
	target string // the API subject of the consumer's next messages

	turn  sync.Mutex // of those who stop and resume
	ended bool       // stopped for good
	sub   *nats.Subscription

	mu      sync.Mutex
	inbox   string
	stopped bool
	paused  bool
	credits int            // messages that the owner can take and no pull asks for
	asked   int            // messages asked for and not yet delivered
	pulls   map[string]int // inbox token -> messages asked for
	next    int
	heard   time.Time // last sign of life
	empty   int       // pulls in a row that ended without a message
	hold    time.Time // no pull before, after an error
}

// NewPull subscribes; pulling starts with the first Credit.
func NewPull(nc *nats.Conn, cfg PullConfig) (*Pull, error) {
	p := &Pull{nc: nc, cfg: cfg, target: "$JS.API.CONSUMER.MSG.NEXT." + cfg.Stream + "." + cfg.Consumer, pulls: map[string]int{}}
	if err := p.subscribe(); err != nil {
		return nil, fmt.Errorf("pull from %s > %s: %w", cfg.Stream, cfg.Consumer, err)
	}
	return p, nil
}

func (p *Pull) subscribe() error {
	inbox := nats.NewInbox()
	sub, err := p.nc.Subscribe(inbox+".*", p.receive)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.inbox = inbox
	p.mu.Unlock()
	p.sub = sub
	// Bounded by the credits, never by the client: its limit would drop.
	return sub.SetPendingLimits(-1, -1)
}

// Credit lends n more messages (or takes them back when n is negative).
func (p *Pull) Credit(n int) {
	p.mu.Lock()
	p.credits += n
	p.ask(time.Time{})
	p.mu.Unlock()
}

// ask sends pulls while two are not outstanding and enough credits are there.
// A pull of a few messages costs the server as much as a large one, so it
// waits for half a batch unless nothing is asked for at all.
func (p *Pull) ask(now time.Time) {
	for !p.stopped && !p.paused && p.credits > 0 && p.asked < p.cfg.Batch && (p.asked == 0 || p.credits >= p.cfg.Batch/2) {
		if now.IsZero() {
			now = time.Now()
		}
		if now.Before(p.hold) || p.empty >= idleAfter && len(p.pulls) > 0 && p.asked > 0 {
			return
		}
		expires, beat := pullExpires, pullHeartbeat
		if p.empty >= idleAfter {
			expires, beat = pullIdleExpires, pullIdleHeartbeat
		}
		n := min(p.credits, p.cfg.Batch)
		body, err := json.Marshal(pullRequest{Batch: n, MaxBytes: p.cfg.MaxBytes, Expires: expires, Heartbeat: beat})
		if err != nil {
			return
		}
		p.next++
		id := strconv.Itoa(p.next)
		if err := p.nc.PublishRequest(p.target, p.inbox+"."+id, body); err != nil {
			p.hold = now.Add(pullHeartbeat)
			return
		}
		if p.asked == 0 {
			p.heard = now
		}
		p.pulls[id] = n
		p.credits -= n
		p.asked += n
	}
}

type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int64         `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

func (p *Pull) receive(m *nats.Msg) {
	now := time.Now()
	if m.Reply == "" { // the server's word on a pull; a message always has an ack subject
		p.status(m, now)
		return
	}
	p.mu.Lock()
	p.heard, p.empty = now, 0
	if p.asked > 0 {
		p.asked--
		if p.asked == 0 {
			clear(p.pulls)
		}
	} else {
		p.credits-- // of a pull that we gave up
	}
	p.ask(now)
	p.mu.Unlock()
	p.cfg.Deliver(m)
}

func (p *Pull) status(m *nats.Msg, now time.Time) {
	code, text := m.Header.Get("Status"), m.Header.Get("Description")
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	var lost error
	p.mu.Lock()
	p.heard = now
	if code != "100" { // 100 is a heartbeat
		left, ok := p.pulls[id]
		if v, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages")); ok && err == nil {
			if v == left {
				p.empty++
			}
			left = v
		}
		delete(p.pulls, id)
		left = min(left, p.asked)
		p.asked -= left
		p.credits += left
		switch {
		case code == "408" || code == "404": // ended with nothing more to say
		case code == "409" && !strings.Contains(text, "Deleted") && !strings.Contains(text, "Shutdown"):
			// A batch completed, the byte limit was reached, a leader changed.
			if strings.Contains(text, "Exceeded Max") && !strings.Contains(text, "Size Exceeds") {
				lost = fmt.Errorf("%w: %s", ErrPullRefused, text)
				p.hold = now.Add(time.Second)
			}
		case code == "503" || code == "409":
			lost = fmt.Errorf("%w: %s > %s (%s)", ErrConsumerLost, p.cfg.Stream, p.cfg.Consumer, cmp.Or(text, "nobody answers"))
			p.hold = now.Add(time.Second)
		default:
			lost = fmt.Errorf("%w: %s %s", ErrPullRefused, code, text)
			p.hold = now.Add(time.Second)
		}
		p.ask(now)
	}
	p.mu.Unlock()
	if lost != nil && p.cfg.Lost != nil {
		p.cfg.Lost(lost)
	}
}

// Pause holds back further pulls while on is true; outstanding ones go on.
func (p *Pull) Pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == on {
		return
	}
	p.paused = on
	p.ask(time.Time{})
}

// Tick gives up pulls that were not heard of for two heartbeats (the
// connection was cut, the server restarted) and asks again.
func (p *Pull) Tick(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	beat := pullHeartbeat
	if p.empty >= idleAfter {
		beat = pullIdleHeartbeat
	}
	if p.asked > 0 && now.Sub(p.heard) > 2*beat+pullHeartbeat {
		p.forget()
	}
	p.ask(now)
}

// Reconnected forgets all pulls: the server forgot them with the connection.
func (p *Pull) Reconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	p.empty, p.hold = 0, time.Time{}
	p.ask(time.Time{})
}

func (p *Pull) forget() {
	p.credits += p.asked
	p.asked = 0
	clear(p.pulls)
}

// Stop ends pulling for good and returns when the last message that the server
// had already sent was given to Deliver.
func (p *Pull) Stop() error {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.ended = true
	return p.halt()
}

// Suspend is Stop until Resume. The server forgets the pulls that it still
// holds, so that others get what comes.
func (p *Pull) Suspend() error {
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.halt()
}

// Resume ends a suspension, without any credits. It does nothing to a pull
// that is not suspended.
func (p *Pull) Resume() error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.ended {
		return fmt.Errorf("pull from %s > %s: %w", p.cfg.Stream, p.cfg.Consumer, nats.ErrBadSubscription)
	}
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if !stopped {
		return nil
	}
	if err := p.subscribe(); err != nil {
		return fmt.Errorf("pull from %s > %s: %w", p.cfg.Stream, p.cfg.Consumer, err)
	}
	p.mu.Lock()
	p.forget()
	p.credits, p.empty, p.hold, p.stopped = 0, 0, time.Time{}, false
	p.mu.Unlock()
	return nil
}

// halt ends the subscription after all that it holds. p.turn is held.
func (p *Pull) halt() error {
	p.mu.Lock()
	was := p.stopped
	p.stopped = true
	p.mu.Unlock()
	if was {
		return nil
	}
	done := make(chan struct{})
	p.sub.SetClosedHandler(func(string) { close(done) })
	err := p.sub.Drain()
	switch {
	case err == nil:
		<-done
		return nil
	case errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription):
		return nil
	}
	// Reconnecting: nothing can arrive, and the next connection must not
	// bring the subscription back.
	return p.sub.Unsubscribe()
}
