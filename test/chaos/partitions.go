package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/test/mqprocess"
	"github.com/mqrun/mqrun/test/natscluster"
)

const partitioned = `
nats: { url: %q, replicas: 3 }
web: { listen: "" }
plugins: { work: { module: work.wasm } }
pipelines:
  first: { from: "ingest.key.*", steps: work, to: mid.x, order: subject, partitions: 6, ack_wait: 2s, retry: { initial: 50ms, jitter: 0 } }
`

const (
	workers = 3
	keys    = 24
	perKey  = 25 // in a round
)

// partitions kills one of three workers in each round, while they share the
// parts of one ordered pipeline on an external cluster, and counts what came out
// of order too.
func partitions(ctx context.Context, b *bench) error {
	c, err := natscluster.Start(filepath.Join(b.dir, "nats"), 3, nil)
	if err != nil {
		return err
	}
	defer func() { b.stop(); c.Close() }()
	b.url = c.URL()
	if err := os.WriteFile(b.config(), fmt.Appendf(nil, partitioned, c.URL()), 0o600); err != nil {
		return err
	}
	var procs [workers]*mqprocess.Process
	for i := range procs {
		if procs[i], err = b.run(ctx); err != nil {
			return err
		}
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	for tries := 0; b.done < b.rounds && tries < 2*b.rounds+5; tries++ {
		before := b.outputs(ctx)
		fed := make(chan error, 1)
		go func() { fed <- b.feedKeys(ctx, tries) }()
		point := 2 + b.random.IntN(keys*perKey*3/4)
		for b.outputs(ctx)-before < point && ctx.Err() == nil {
			sleep(ctx, time.Millisecond)
		}
		out := b.outputs(ctx) - before
		victim := b.random.IntN(workers)
		procs[victim].Kill()
		if procs[victim], err = b.run(ctx); err != nil {
			return err
		}
		if err := <-fed; err != nil {
			return err
		}
		for b.outputs(ctx) < before+keys*perKey {
			if !sleep(ctx, 20*time.Millisecond) {
				break // what is missing is counted
			}
		}
		if out > 1 && out < keys*perKey {
			b.done++
		}
	}
	if err := b.countKeys(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return errCounted
}

// outputs is how many there are.
func (b *bench) outputs(ctx context.Context) int {
	st, err := b.js.Stream(ctx, midStream)
	if err != nil {
		return 0
	}
	return int(st.CachedInfo().State.Msgs)
}

// feedKeys publishes the next messages of all keys side by side, those of one
// key one after the other. Every fifth is tried twice.
func (b *bench) feedKeys(ctx context.Context, round int) error {
	var wg sync.WaitGroup
	errs := make(chan error, keys)
	for k := range keys {
		wg.Go(func() {
			for i := round * perKey; i < (round+1)*perKey; i++ {
				kind := "e"
				if i%5 == 0 {
					kind = "t"
				}
				m := &nats.Msg{Subject: fmt.Sprintf("ingest.key.%d", k), Data: fmt.Appendf(nil, "%s%d:%d-", kind, k, i), Header: nats.Header{"Nats-Msg-Id": {fmt.Sprintf("%d:%d", k, i)}}}
				for {
					try, cancel := context.WithTimeout(ctx, 2*time.Second)
					_, err := b.js.PublishMsg(try, m)
					cancel()
					if err == nil {
						break
					}
					if !sleep(ctx, 20*time.Millisecond) {
						errs <- fmt.Errorf("publish %s: %w", m.Data, err)
						return
					}
				}
				b.mu.Lock()
				b.inputs = append(b.inputs, string(m.Data))
				b.mu.Unlock()
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// countKeys compares the outputs with the inputs, in the order of the stream.
func (b *bench) countKeys(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lost, twice, disorder, total := 0, 0, 0, 0
	seen := map[string]bool{}
	next := map[string]int{}
	texts, err := b.sequence(ctx)
	if err != nil {
		return err
	}
	for _, text := range texts {
		total++
		if seen[text] {
			twice++
			continue
		}
		seen[text] = true
		key, number, _ := strings.Cut(strings.TrimSuffix(text, "-"), ":")
		n, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("output %q is none of ours", text)
		}
		if n < next[key] {
			disorder++
		}
		next[key] = max(next[key], n+1)
	}
	for _, in := range b.inputs {
		if !seen[in[1:]] {
			lost++
		}
	}
	dead := 0
	if st, err := b.js.Stream(ctx, deadStream); err == nil {
		dead = int(st.CachedInfo().State.Msgs)
	}
	fmt.Fprintf(b.out, "RESULT scenario=%s commit=%s rounds=%d confirmed=%d handled=%d outputs=%d duplicates=%d dead=%d lost=%d disorder=%d\n",
		b.name, b.commit, b.done, len(b.inputs), b.logs.handled(), total, twice, dead, lost, disorder)
	switch {
	case lost+twice+disorder+dead > 0:
		return fmt.Errorf("%d lost, %d there twice, %d out of order, %d dead", lost, twice, disorder, dead)
	case b.done < b.rounds:
		return fmt.Errorf("only %d of %d rounds count", b.done, b.rounds)
	}
	return nil
}

// sequence is the payloads of all outputs in the stream's order.
func (b *bench) sequence(ctx context.Context) ([]string, error) {
	all := b.outputs(ctx)
	c, err := b.js.OrderedConsumer(ctx, midStream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"mid.x"}})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", midStream, err)
	}
	var texts []string
	for len(texts) < all {
		batch, err := c.Fetch(1000, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", midStream, err)
		}
		for m := range batch.Messages() {
			texts = append(texts, string(m.Data()))
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return texts, nil
}
