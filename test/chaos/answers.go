package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/mqrun/mqrun/test/natscluster"
)

// dropper decides which of the server's answers get lost.
type dropper struct {
	on        atomic.Bool
	n         atomic.Uint64
	pubs, fin atomic.Int64 // PubAcks and confirmations that were lost
}

// drop is asked for every message to the client.
func (d *dropper) drop(subject, payload []byte) bool {
	if !d.on.Load() || !bytes.HasPrefix(subject, []byte("_INBOX.")) {
		return false
	}
	var lost *atomic.Int64
	switch {
	case len(payload) == 0:
		lost = &d.fin
	case bytes.HasPrefix(payload, []byte(`{"stream":`)) && bytes.Contains(payload, []byte(`"seq":`)):
		lost = &d.pubs
	default:
		return false
	}
	if d.n.Add(1)%43 != 0 {
		return false
	}
	lost.Add(1)
	return true
}

// filter carries what a server says, in the frames of its protocol, but for the
// messages that are dropped.
func filter(to io.Writer, from io.Reader, drop func(subject, payload []byte) bool) error {
	in := bufio.NewReaderSize(from, 64<<10)
	out := bufio.NewWriterSize(to, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		frame := line
		word := bytes.Fields(line)
		if len(word) > 3 && (bytes.Equal(word[0], []byte("MSG")) || bytes.Equal(word[0], []byte("HMSG"))) {
			size, err := strconv.Atoi(string(word[len(word)-1]))
			if err != nil {
				return fmt.Errorf("frame %q: %w", line, err)
			}
			frame = slices.Concat(line, make([]byte, size+2))
			if _, err := io.ReadFull(in, frame[len(line):]); err != nil {
				return err
			}
			if drop(word[1], frame[len(line):len(frame)-2]) {
				frame = nil
			}
		}
		if _, err := out.Write(frame); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// answers loses PubAcks and confirmations of acks, one by one, on connections
// that stay: publishes and acks are sent again, and no handler is called again.
func answers(ctx context.Context, b *bench) error {
	c, err := natscluster.Start(filepath.Join(b.dir, "nats"), 1, nil)
	if err != nil {
		return err
	}
	defer func() { b.stop(); c.Close() }()
	var d dropper
	p, err := newProxy(c.NodeURL(0)[len("nats://"):])
	if err != nil {
		return err
	}
	defer p.close()
	p.drop = d.drop
	b.url = c.URL()
	b.head = fmt.Sprintf("nats: { url: \"nats://%s\", replicas: 1 }\n", p.l.Addr())
	if err := b.configure(); err != nil {
		return err
	}
	if _, err := b.run(ctx); err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	d.on.Store(true)
	err = b.repeat(ctx, func() error { return nil })
	b.more = fmt.Sprintf(" pubacks_lost=%d acks_lost=%d", d.pubs.Load(), d.fin.Load())
	if err == nil {
		err = b.count(ctx)
	}
	if err == nil && (d.pubs.Load() == 0 || d.fin.Load() == 0) {
		err = errors.New("nothing got lost on the way")
	}
	if err != nil {
		return err
	}
	return errCounted
}
