package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// expected is what the inputs must lead to, by stream, and how often the guest
// is called for it when nothing goes wrong.
type expected struct {
	mid, out, dead []string
	calls          int
}

// step says in a few lines of its own what a pipeline makes of a message.
func step(in string) (out []string, dead bool, calls int) {
	rest := in[1:]
	switch in[0] {
	case 'e', 's', 'p':
		return []string{rest}, false, 1
	case 't':
		return []string{rest}, false, 2
	case 'f':
		body := strings.TrimSuffix(rest, "-")
		return []string{body + "a", body + "b"}, false, 1
	case 'r':
		return nil, true, 1
	}
	return nil, false, 1
}

func expect(inputs []string) expected {
	var e expected
	through := func(in string, to *[]string) []string {
		out, dead, calls := step(in)
		e.calls += calls
		*to = append(*to, out...)
		if dead {
			e.dead = append(e.dead, in)
		}
		return out
	}
	for _, in := range inputs {
		for _, mid := range through(in, &e.mid) {
			through(mid, &e.out)
		}
	}
	return e
}

// content is how often each payload is on a subject. A cluster in which a node
// has just come back may not answer at once.
func (b *bench) content(ctx context.Context, stream, subject string) (have map[string]int, err error) {
	for range 40 {
		if have, err = b.read(ctx, stream, subject); err == nil || !sleep(ctx, 250*time.Millisecond) {
			break
		}
	}
	return have, err
}

func (b *bench) read(ctx context.Context, stream, subject string) (map[string]int, error) {
	have := map[string]int{}
	c, err := b.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	for {
		batch, err := c.Fetch(1000, jetstream.FetchMaxWait(500*time.Millisecond))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", stream, err)
		}
		n := 0
		for m := range batch.Messages() {
			have[string(m.Data())]++
			n++
		}
		if err := batch.Error(); err != nil {
			return nil, fmt.Errorf("read %s: %w", stream, err)
		}
		if info, err := c.Info(ctx); err == nil && info.NumPending == 0 && n < 1000 {
			return have, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// compare counts what is not there, there too often, and there for no reason.
func compare(want []string, have map[string]int) (lost, twice, strange []string) {
	left := maps.Clone(have)
	for _, w := range want {
		switch n := left[w]; {
		case n == 0:
			lost = append(lost, w)
		case n > 1:
			twice = append(twice, w)
		}
		delete(left, w)
	}
	return lost, twice, slices.Sorted(maps.Keys(left))
}

// count waits until all is settled, compares, and prints the result.
func (b *bench) count(ctx context.Context) error {
	if err := b.settled(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	inputs := slices.Clone(b.inputs)
	b.mu.Unlock()
	e := expect(inputs)
	var lost, twice, strange []string
	outputs, dead := 0, 0
	for _, s := range []struct {
		stream, subject string
		want            []string
		n               *int
	}{{midStream, "mid.x", e.mid, nil}, {outStream, "out.x", e.out, &outputs}, {deadStream, "dlq.>", e.dead, &dead}} {
		have, err := b.content(ctx, s.stream, s.subject)
		for err != nil && sleep(ctx, time.Second) { // a node that came back last may not answer yet
			have, err = b.content(ctx, s.stream, s.subject)
		}
		if err != nil {
			return err
		}
		want := slices.DeleteFunc(s.want, func(w string) bool { return slices.Contains(b.taken[s.stream], w) })
		l, t, u := compare(want, have)
		lost, twice, strange = append(lost, l...), append(twice, t...), append(strange, u...)
		for _, n := range have {
			if s.n != nil {
				*s.n += n
			}
		}
	}
	// An input that is stored twice is not a pipeline's doing. Some were purged.
	have, err := b.content(ctx, inStream, "ingest.x")
	if err != nil {
		return err
	}
	_, again, _ := compare(inputs, have)
	handled := b.logs.handled()
	fmt.Fprintf(b.out, "RESULT scenario=%s commit=%s rounds=%d confirmed=%d handled=%d expected_calls=%d outputs=%d duplicates=%d dead=%d lost=%d%s seconds=%.0f\n",
		b.name, b.commit, b.done, len(inputs), handled, e.calls, outputs, len(twice), dead, len(lost), b.more, time.Since(b.begin).Seconds())
	var errs []error
	for _, bad := range []struct {
		what string
		ids  []string
	}{{"lost", lost}, {"stored twice by their publisher", again}, {"there twice", twice}, {"there for no reason", strange}} {
		if n := len(bad.ids); n > 0 {
			errs = append(errs, fmt.Errorf("%d %s: %q", n, bad.what, bad.ids[:min(n, 5)]))
		}
	}
	if b.done < b.rounds {
		errs = append(errs, fmt.Errorf("only %d of %d rounds count", b.done, b.rounds))
	}
	if b.spare > 0 && handled > e.calls+b.spare {
		errs = append(errs, fmt.Errorf("%d calls of the guest where %d are enough, with %d that crashes had in work: too much was handled again", handled, e.calls, b.spare))
	}
	if b.once && handled != e.calls {
		errs = append(errs, fmt.Errorf("%d calls of the guest where %d are enough: something was handled again", handled, e.calls))
	}
	return errors.Join(errs...)
}
