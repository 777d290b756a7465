package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// pool hands out instances, the last returned first: its memory is warm, and
// the others may be let go. At most max are alive; those who come too late wait
// in line.
//
// An instance whose caller comes again and again is parked in between: it stays
// out, and the caller takes it again without a look at what others write to.
type pool struct {
	start   func(ctx context.Context, pipeline string) (*instance, error)
	reuse   bool
	drained func() // once, after close, when nothing is alive

	mu      sync.Mutex
	idle    []*instance
	out     []*instance
	alive   int // idle, out and being started
	max     int
	waiting []chan *instance // a nil instance is a permit to start one
	closed  bool

	heed atomic.Bool // who parks has to look: somebody waits, or one is too many
}

func newPool(start func(context.Context, string) (*instance, error), size int, reuse bool, drained func()) *pool {
	return &pool{start: start, max: size, reuse: reuse, drained: drained}
}

// take notes that in is out; p.mu is held.
func (p *pool) take(in *instance) {
	in.out = len(p.out)
	p.out = append(p.out, in)
}

// untake is the opposite; p.mu is held.
func (p *pool) untake(in *instance) {
	last := len(p.out) - 1
	p.out[in.out] = p.out[last]
	p.out[in.out].out = in.out
	p.out[last] = nil
	p.out = p.out[:last]
}

// claim takes the instance that its caller parked.
func (in *instance) claim() bool { return in.parked.CompareAndSwap(true, false) }

// park leaves in where it is, for the caller that had it before.
func (p *pool) park(in *instance) {
	in.parked.Store(true)
	if p.heed.Load() && in.claim() {
		p.put(in)
	}
}

// unpark makes parked instances idle ones; p.mu is held. Whoever parks one from
// now on looks at heed, which watch sets right again.
func (p *pool) unpark() {
	p.heed.Store(true)
	for i := len(p.out) - 1; i >= 0; i-- {
		if in := p.out[i]; in.claim() {
			p.untake(in)
			p.idle = append(p.idle, in)
		}
	}
}

// unlock lets go of p.mu, having said whether who parks has to look.
func (p *pool) unlock() {
	if heed := p.closed || len(p.waiting) > 0 || p.alive > p.max; heed != p.heed.Load() {
		p.heed.Store(heed)
	}
	p.mu.Unlock()
}

// get returns an instance, or a new one when there is room for it. A new one
// starts on behalf of a pipeline.
func (p *pool) get(ctx context.Context, pipeline string) (*instance, error) {
	in, err := p.permit(ctx, true)
	for err == nil && in == nil {
		in, err = p.start(ctx, pipeline)
		p.mu.Lock()
		var ce *CallError
		switch {
		case err == nil:
			p.take(in)
		case errors.As(err, &ce) && ce.noRoom && p.alive > 1 && !p.closed: // another one will do
			p.alive--
			p.unlock()
			in, err = p.permit(ctx, false)
			continue
		default:
			p.gone()
		}
		p.unlock()
	}
	return in, err
}

// permit returns an idle instance, or nil when the caller is to start one. With
// start false it rather waits for one that is alive.
func (p *pool) permit(ctx context.Context, start bool) (*instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if len(p.idle) == 0 {
		p.unpark()
	}
	switch n := len(p.idle); {
	case p.closed:
		p.unlock()
		return nil, ErrClosed
	case n > 0:
		in := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.take(in)
		p.unlock()
		return in, nil
	case (start || p.alive == 0) && p.alive < p.max:
		p.alive++
		p.unlock()
		return nil, nil
	}
	return p.await(ctx, p.queue())
}

// queue gets in line; p.mu is held.
func (p *pool) queue() chan *instance {
	turn := make(chan *instance, 1)
	p.waiting = append(p.waiting, turn)
	return turn
}

// await unlocks p.mu and waits for a turn.
func (p *pool) await(ctx context.Context, turn chan *instance) (*instance, error) {
	p.unlock()
	select {
	case in, ok := <-turn:
		if !ok {
			return nil, ErrClosed
		}
		return in, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	i := slices.Index(p.waiting, turn)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.unlock()
	if i < 0 { // the turn came at the same moment: pass it on
		if in, ok := <-turn; ok {
			p.give(in)
		}
	}
	return nil, ctx.Err()
}

// put takes an instance back. One that is spent is closed, and its place goes to the next in line.
func (p *pool) put(in *instance) {
	if in.spent() || !p.reuse {
		in.close()
		p.mu.Lock()
		p.untake(in)
		p.gone()
		p.unlock()
		return
	}
	p.give(in)
}

// discard drops an instance that failed. Its place is free once its memory is,
// which takes some ms when it was much; nobody waits for that.
func (p *pool) discard(in *instance) {
	p.mu.Lock()
	p.untake(in)
	p.unlock()
	go p.drop([]*instance{in})
}

// give passes on an instance, or a permit to start one (nil).
func (p *pool) give(in *instance) {
	p.mu.Lock()
	switch {
	case in == nil:
		p.gone()
	case p.closed || p.alive > p.max:
		p.untake(in)
		p.unlock()
		in.close()
		p.mu.Lock()
		p.gone()
	case len(p.waiting) > 0:
		p.next() <- in
	default:
		p.untake(in)
		p.idle = append(p.idle, in)
	}
	p.unlock()
}

// gone gives up one place; p.mu is held.
func (p *pool) gone() {
	p.alive--
	p.admit()
	if p.closed && p.alive == 0 {
		p.drained()
	}
}

// admit lets those in line start as many as there is room for; p.mu is held.
func (p *pool) admit() {
	for !p.closed && len(p.waiting) > 0 && p.alive < p.max {
		p.alive++
		p.next() <- nil
	}
}

func (p *pool) next() chan *instance {
	turn := p.waiting[0]
	p.waiting = slices.Delete(p.waiting, 0, 1)
	return turn
}

// fill starts one instance and keeps it.
func (p *pool) fill(ctx context.Context) error {
	in, err := p.get(ctx, "")
	if err == nil {
		p.put(in)
	}
	return err
}

func (p *pool) setMax(n int) {
	p.mu.Lock()
	p.max = n
	p.unpark()
	p.admit()
	var extra []*instance
	for p.alive-len(extra) > p.max && len(extra) < len(p.idle) {
		extra = append(extra, p.idle[len(extra)]) // the coldest
	}
	p.idle = slices.Delete(p.idle, 0, len(extra))
	p.unlock()
	p.drop(extra)
}

func (p *pool) drop(ins []*instance) {
	for _, in := range ins {
		in.close()
		p.mu.Lock()
		p.gone()
		p.unlock()
	}
}

// idling is how many instances wait for work.
func (p *pool) idling() int {
	p.mu.Lock()
	defer p.unlock()
	n := len(p.idle)
	for _, in := range p.out {
		if in.parked.Load() {
			n++
		}
	}
	return n
}

// shed drops the coldest idle instance, if there is one.
func (p *pool) shed() bool {
	p.mu.Lock()
	if len(p.idle) == 0 {
		p.unpark()
	}
	if len(p.idle) == 0 {
		p.unlock()
		return false
	}
	in := p.idle[0]
	p.idle = slices.Delete(p.idle, 0, 1)
	p.unlock()
	p.drop([]*instance{in})
	return true
}

// close refuses further gets and drops what is idle.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.unpark()
	idle := p.idle
	p.idle = nil
	for len(p.waiting) > 0 {
		close(p.next())
	}
	if p.alive == 0 {
		p.drained()
	}
	p.unlock()
	p.drop(idle)
}

// kill stops the calls that still run.
func (p *pool) kill() {
	p.mu.Lock()
	for _, in := range p.out {
		in.call.kill()
	}
	p.unlock()
}
