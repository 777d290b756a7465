package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

const (
	mendFirst = 100 * time.Millisecond
	mendMost  = 5 * time.Second

	// metaRewound is where a consumer remembers after which sequences its stream
	// has lost its end.
	metaRewound = "mqrun-rewound"
)

// sourceLost takes the news that an input gives nothing any more.
func (p *pipeline) sourceLost(src *source, err error) {
	p.mu.Lock()
	_, known := p.lost[src.stream]
	p.lost[src.stream] = err.Error()
	p.mu.Unlock()
	if !known {
		p.log.Error("input stopped", "stream", src.stream, "error", err)
	}
	if errors.Is(err, mq.ErrConsumerLost) {
		p.lookAfter(src)
	}
}

// lookAfter finds out what is wrong with an input, and mends it.
func (p *pipeline) lookAfter(src *source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving || src.mending {
		return
	}
	if p.lanes != nil { // whoever runs it begins anew: order needs a clean start
		if p.active && p.lost[src.stream] != "" && p.broken == nil {
			p.broken = errors.New(p.lost[src.stream])
		}
		return
	}
	src.mending = true
	p.workers.Go(func() { p.mend(src) })
}

// mend tries until the input's consumer is there.
func (p *pipeline) mend(src *source) {
	said := ""
	for wait := mendFirst; ; wait = min(2*wait, mendMost) {
		select { // the news can come before the consumer is really gone
		case <-time.After(wait):
		case <-p.quit:
			return
		}
		ctx, cancel := context.WithTimeout(p.work, flushWait)
		_, err := p.restore(ctx, src)
		cancel()
		if err == nil {
			break
		}
		p.mu.Lock()
		p.lost[src.stream] = err.Error()
		p.mu.Unlock()
		if said != err.Error() && p.work.Err() == nil {
			said = err.Error()
			p.log.Error("input cannot go on, trying again", "stream", src.stream, "error", err)
		}
	}
	p.mu.Lock()
	src.mending = false
	_, was := p.lost[src.stream]
	delete(p.lost, src.stream)
	p.mu.Unlock()
	src.pull.Reconnected()
	if was {
		p.log.Info("input goes on", "stream", src.stream)
	}
}

// restore sees to it that an input has its consumer, and that it stands where
// the pipeline is. It is the same at start and later: the consumer can be gone,
// the stream can be another one of the same name, or have lost its end.
func (p *pipeline) restore(ctx context.Context, src *source) (info *jetstream.ConsumerInfo, err error) {
	err = p.broker.steady(func() error {
		info, err = p.lookAt(ctx, src)
		return err
	})
	return info, err
}

func (p *pipeline) lookAt(ctx context.Context, src *source) (*jetstream.ConsumerInfo, error) {
	js := p.broker.js
	st, err := js.Stream(ctx, src.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		p.broker.missing()
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", src.stream, err)
	}
	p.mu.Lock()
	was := src.ident.made
	p.mu.Unlock()
	if made := st.CachedInfo().Created; !made.Equal(was) {
		p.renew(src, made)
	}
	p.mu.Lock()
	ident, known, anew := src.ident, src.known, src.fresh
	running := !known.made.IsZero()
	p.mu.Unlock()

	want := p.consumerOf(src)
	if anew && want.DeliverPolicy != jetstream.DeliverByStartTimePolicy {
		want.DeliverPolicy, want.OptStartSeq = jetstream.DeliverAllPolicy, 0 // all that it holds is new to us
	}
	rewound := ident.rewound
	if !running && !anew {
		k, before, ok, err := p.recall(ctx, src, ident)
		if err != nil {
			return nil, err
		}
		if ok {
			running, rewound, known = true, before, k
			p.mu.Lock()
			src.known = k
			p.mu.Unlock()
		}
	}
	if running {
		// Should it be gone, it is made where we are.
		start := known.floor
		if last := st.CachedInfo().State.LastSeq; known.top > last {
			if last, err = lastSequence(ctx, st, known.top); err != nil {
				return nil, fmt.Errorf("stream %s: %w", src.stream, err)
			}
			if known.top > last {
				rewound, start = append(rewound[:len(rewound):len(rewound)], last), min(start, last)
			}
		}
		want = startAt(want, start+1, rewound)
	}
	info, err := ensureConsumer(ctx, js, src.stream, want)
	if err != nil {
		return nil, err
	}
	if src.was.fence != 0 {
		if err := p.broker.forgetCheckpoint(ctx, p.key, src.was); err != nil {
			return nil, err
		}
		src.was = checkpoint{}
	}
	// A consumer that is ahead of its stream would skip as many new messages.
	last, err := lastSequence(ctx, st, info.Delivered.Stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", src.stream, err)
	}
	if info, err = p.rewindAll(ctx, src, info, known, rewound); err != nil {
		return nil, err
	}
	if missing := info.Delivered.Stream - min(last, info.Delivered.Stream); missing > 0 {
		p.lostEnd(mq.Loss{Stream: src.stream, Delivered: info.Delivered.Stream, Last: last})
		rewound = append(rewoundOf(info), last)
		want = startAt(p.consumerOf(src), min(info.AckFloor.Stream, last)+1, rewound)
		if err := js.DeleteConsumer(ctx, src.stream, src.consumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, fmt.Errorf("consumer %s on stream %s: %w", src.consumer, src.stream, err)
		}
		if info, err = ensureConsumer(ctx, js, src.stream, want); err != nil {
			return nil, err
		}
	}
	if err := p.settleDown(ctx, src, info, running); err != nil {
		return nil, err
	}
	if anew {
		p.resume(src)
	}
	return info, nil
}

// settleDown takes over what the consumer says.
func (p *pipeline) settleDown(ctx context.Context, src *source, info *jetstream.ConsumerInfo, running bool) error {
	p.mu.Lock()
	ident := src.ident
	if r := rewoundOf(info); len(r) > len(ident.rewound) {
		ident = newIdentity(p.key, src.stream, ident.made, r...)
		if running {
			last := r[len(r)-1]
			src.known.done.upTo(last)
			src.known.floor, src.known.top = min(src.known.floor, last), min(src.known.top, last)
		}
	}
	k := &src.known
	switch other := !info.Created.Equal(k.made); {
	case other && running:
		p.counts.mended.Add(1)
		p.log.Error("the consumer was deleted; it goes on where the pipeline is", "stream", src.stream, "from", k.floor+1, "settled above it", len(k.done))
		k.again = max(k.again, k.top)
	case other:
		*k = mark{top: info.Delivered.Stream}
	}
	k.made = info.Created
	k.raise(info.AckFloor.Stream)
	floor := k.floor
	src.ident = ident
	p.mu.Unlock()
	return p.attempts.load(ctx, ident, floor)
}

// renew goes over to another stream of the same name. What is in work ends
// without a word to it.
func (p *pipeline) renew(src *source, made time.Time) {
	if src.pull != nil {
		if err := src.pull.Suspend(); err != nil {
			p.log.Warn("stop pulling", "stream", src.stream, "error", err)
		}
	}
	p.mu.Lock()
	src.ident.gone.Store(true)
	src.fresh = true
	src.ident, src.known = newIdentity(p.key, src.stream, made), mark{}
	p.mu.Unlock()
	p.counts.mended.Add(1)
	p.log.Error("the stream was deleted and made anew; the pipeline goes on with the new one", "stream", src.stream, "made", made.UTC().Format(time.RFC3339))
}

// resume pulls again after renew.
func (p *pipeline) resume(src *source) {
	p.mu.Lock()
	src.fresh = false
	p.mu.Unlock()
	if src.pull == nil || p.lanes != nil { // takeOver does it
		return
	}
	if err := src.pull.Resume(); err != nil {
		p.log.Error("pull again", "stream", src.stream, "error", err)
		return
	}
	p.mu.Lock()
	src.pull.Credit(p.share() - src.busy)
	p.throttle()
	p.mu.Unlock()
}

// startAt is a consumer that begins at a sequence.
func startAt(c jetstream.ConsumerConfig, sequence uint64, rewound []uint64) jetstream.ConsumerConfig {
	c.Metadata = maps.Clone(c.Metadata)
	c.DeliverPolicy, c.OptStartTime, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil, max(sequence, 1)
	if len(rewound) > 0 {
		texts := make([]string, len(rewound))
		for i, n := range rewound {
			texts[i] = strconv.FormatUint(n, 10)
		}
		c.Metadata[metaRewound] = strings.Join(texts, ",")
	}
	return c
}

// rewoundOf reads what startAt wrote.
func rewoundOf(info *jetstream.ConsumerInfo) []uint64 {
	var all []uint64
	for s := range strings.SplitSeq(info.Config.Metadata[metaRewound], ",") {
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// lastSequence is the stream's last one. When it seems to be below what is
// known it is asked for again: in a cluster the stream's leader can be a moment
// behind the consumer's.
func lastSequence(ctx context.Context, st jetstream.Stream, known uint64) (uint64, error) {
	for try := 0; ; try++ {
		info, err := st.Info(ctx)
		if err != nil {
			return 0, err
		}
		if last := info.State.LastSeq; last >= known || try == 5 {
			return last, nil
		}
		select {
		case <-time.After(mendFirst):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (p *pipeline) lostEnd(l mq.Loss) {
	p.counts.mended.Add(1)
	p.log.Error("the stream has lost its end: messages that were delivered are no longer there (a power cut, or an older copy); the consumer goes back",
		"stream", l.Stream, "messages", l.Delivered-l.Last, "last", l.Last, "delivered", l.Delivered)
}

// rewindAll deals with the losses after which the server has set the consumer
// back by itself. Those of a server that is not ours are only seen while the
// pipeline runs: it knows that it was further.
func (p *pipeline) rewindAll(ctx context.Context, src *source, info *jetstream.ConsumerInfo, known mark, rewound []uint64) (*jetstream.ConsumerInfo, error) {
	ours := false
	for {
		loss, at, ok := p.broker.losses.of(src.stream, src.consumer)
		if !ok {
			break
		}
		var err error
		if info, err = p.rewind(ctx, src, info, loss); err != nil {
			return nil, err
		}
		p.broker.losses.drop(at)
		ours = true
	}
	if !ours && len(rewound) > len(rewoundOf(info)) {
		return p.rewind(ctx, src, info, mq.Loss{Stream: src.stream, Consumer: src.consumer, Delivered: known.top, Last: rewound[len(rewound)-1]})
	}
	return info, nil
}

// rewind lets the consumer remember a loss after which the server itself has
// set it back: new messages get the sequences of lost ones, and must not get
// their ids.
func (p *pipeline) rewind(ctx context.Context, src *source, info *jetstream.ConsumerInfo, l mq.Loss) (*jetstream.ConsumerInfo, error) {
	p.lostEnd(l)
	c := startAt(info.Config, info.Config.OptStartSeq, append(rewoundOf(info), l.Last))
	c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = info.Config.DeliverPolicy, info.Config.OptStartSeq, info.Config.OptStartTime
	updated, err := p.broker.js.UpdateConsumer(ctx, src.stream, c)
	if err != nil {
		return nil, fmt.Errorf("update consumer %s on stream %s: %w", src.consumer, src.stream, err)
	}
	if info, err = updated.Info(ctx); err != nil { // the update's own answer has another creation time
		return nil, fmt.Errorf("consumer %s on stream %s: %w", src.consumer, src.stream, err)
	}
	info.AckFloor.Stream, info.Delivered.Stream = min(info.AckFloor.Stream, l.Last), min(info.Delivered.Stream, l.Last)
	return info, nil
}

// losses are those that the embedded server knows of and nobody has dealt with.
type losses struct {
	known func() []mq.Loss

	mu   sync.Mutex
	done map[int]bool // of known
}

func (l *losses) of(stream, consumer string) (loss mq.Loss, at int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, loss := range l.known() {
		if loss.Stream == stream && loss.Consumer == consumer && !l.done[i] {
			return loss, i, true
		}
	}
	return mq.Loss{}, 0, false
}

func (l *losses) drop(at int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = map[int]bool{}
	}
	l.done[at] = true
}
