package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// damage kills the process and damages its store: flipped bytes, a block cut
// short or gone, no index, no consumer, no description. What is lost must be
// named at the next start, stream and number, and nothing else may be missing;
// a stream that cannot be told from a new one must be refused.
func damage(ctx context.Context, b *bench) error {
	if err := b.serve("store"); err != nil {
		return err
	}
	p, err := b.run(ctx)
	if err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	missing, said, refusals := 0, 0, 0
	for b.done < b.rounds {
		if err := b.feed(ctx, perRound/4); err != nil {
			return err
		}
		if err := b.settled(ctx); err != nil {
			return err
		}
		if err := b.known(ctx); err != nil {
			return err
		}
		h := harms[b.done%len(harms)]
		of := []string{inStream, midStream, outStream, deadStream}
		if h.read {
			of = of[:2]
		}
		stream := of[b.random.IntN(len(of))]
		held, err := b.holds(ctx, stream)
		if err != nil {
			return err
		}
		p.Kill()
		undo, err := h.do(b, filepath.Join(b.dir, "store", "jetstream", "$G", "streams", stream))
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		before := b.logs.lost(stream)
		if p, err = b.run(ctx); h.refused {
			if err == nil {
				return fmt.Errorf("%s of stream %s: it runs as if nothing was", h.name, stream)
			}
			if undo == nil {
				return fmt.Errorf("%s: nothing to put back", h.name)
			}
			refusals++
			if err := undo(); err != nil {
				return err
			}
			p, err = b.run(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s of stream %s: %w", h.name, stream, err)
		}
		if err := b.settled(ctx); err != nil {
			return err
		}
		gone, err := b.took(ctx, stream, held)
		if err != nil {
			return err
		}
		word := b.logs.lost(stream) - before
		fmt.Fprintf(b.out, "damage: %s of %s: %d lost, %d named\n", h.name, stream, gone, word)
		if gone > word {
			return fmt.Errorf("%s of stream %s: %d messages are gone, and mqrun named %d", h.name, stream, gone, word)
		}
		missing, said = missing+gone, said+word
		b.done++
	}
	b.more = fmt.Sprintf(" damaged=%d named=%d refused=%d", missing, said, refusals)
	return nil
}

// harm is one way to damage a stream. refused: the store must not be opened
// until it is undone.
type harm struct {
	name    string
	refused bool
	read    bool // only of a stream that a pipeline reads
	do      func(b *bench, stream string) (undo func() error, err error)
}

var harms = []harm{
	{"flipped bytes", false, false, func(b *bench, stream string) (func() error, error) {
		return nil, b.block(stream, func(f *os.File, at int64) error {
			bytes := make([]byte, 40)
			if _, err := f.ReadAt(bytes, at); err != nil {
				return err
			}
			for i := range bytes {
				bytes[i] ^= 0xff
			}
			_, err := f.WriteAt(bytes, at)
			return err
		})
	}},
	{"no description", true, false, func(_ *bench, stream string) (func() error, error) {
		path := filepath.Join(stream, "meta.inf")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return func() error { return os.WriteFile(path, text, 0o600) }, os.Remove(path)
	}},
	{"a block cut short", false, false, func(b *bench, stream string) (func() error, error) {
		return nil, b.block(stream, func(f *os.File, at int64) error { return f.Truncate(at) })
	}},
	{"no consumers", false, true, func(_ *bench, stream string) (func() error, error) {
		return nil, os.RemoveAll(filepath.Join(stream, "obs"))
	}},
	{"no index", false, false, func(_ *bench, stream string) (func() error, error) {
		err := os.Remove(filepath.Join(stream, "msgs", "index.db"))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return nil, err
	}},
	{"no blocks", false, false, func(_ *bench, stream string) (func() error, error) {
		blocks, err := filepath.Glob(filepath.Join(stream, "msgs", "*.blk"))
		for _, path := range blocks {
			err = errors.Join(err, os.Remove(path))
		}
		return nil, err
	}},
}

// block does harm at a random place of the stream's last block.
func (b *bench) block(stream string, do func(f *os.File, at int64) error) error {
	blocks, err := filepath.Glob(filepath.Join(stream, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		return fmt.Errorf("no blocks in %s: %w", stream, err)
	}
	f, err := os.OpenFile(slices.Max(blocks), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return do(f, b.random.Int64N(max(1, st.Size()-40)))
}

// known waits until mqrun has written down what the streams hold.
func (b *bench) known(ctx context.Context) error {
	for {
		var ledger struct {
			Streams map[string]struct{ Messages int }
		}
		text, err := os.ReadFile(filepath.Join(b.dir, "store", "STREAMS"))
		if err == nil {
			err = json.Unmarshal(text, &ledger)
		}
		same := err == nil
		for _, s := range []string{inStream, midStream, outStream, deadStream} {
			st, e := b.js.Stream(ctx, s)
			same = same && e == nil && int(st.CachedInfo().State.Msgs) == ledger.Streams[s].Messages
		}
		if same {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("what the streams hold is not written down: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// holds is what a stream holds, by payload.
func (b *bench) holds(ctx context.Context, stream string) (map[string]int, error) {
	subject := map[string]string{inStream: "ingest.x", midStream: "mid.x", outStream: "out.x", deadStream: "dlq.>"}[stream]
	return b.content(ctx, stream, subject)
}

// took notes what a stream held and does not hold any more.
func (b *bench) took(ctx context.Context, stream string, held map[string]int) (int, error) {
	now, err := b.holds(ctx, stream)
	if err != nil {
		return 0, err
	}
	n := 0
	for payload := range held {
		if now[payload] == 0 {
			b.taken[stream] = append(b.taken[stream], payload)
			n++
		}
	}
	return n, nil
}
