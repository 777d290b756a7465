package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/mqrun/mqrun/test/natscluster"
)

// proxy carries connections to a server. It can cut them, and swallow what one
// side says before it does: PubAcks and the answers to acks, or the publishes
// and acks themselves.
type proxy struct {
	l      net.Listener
	target string

	mu    sync.Mutex
	conns map[net.Conn]bool
	deaf  [2]bool                            // swallow what comes from the client, from the server
	drop  func(subject, payload []byte) bool // set before the first connection
	wg    sync.WaitGroup
}

const (
	fromClient = iota
	fromServer
)

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{l: l, target: target, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	return p, nil
}

func (p *proxy) serve(c net.Conn) {
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.carry(s, c, fromClient) })
	if p.drop != nil {
		_ = filter(c, s, p.drop)
		_ = c.Close()
	} else {
		p.carry(c, s, fromServer)
	}
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, s)
	p.mu.Unlock()
}

func (p *proxy) carry(to, from net.Conn, side int) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		deaf := p.deaf[side]
		p.mu.Unlock()
		if deaf {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) swallow(side int, on bool) {
	p.mu.Lock()
	p.deaf[side] = on
	p.mu.Unlock()
}

// cut ends all connections; new ones are taken at once.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) close() {
	_ = p.l.Close()
	p.cut()
	p.wg.Wait()
}

// network cuts the connection between mqrun and its server in the middle of the
// work, with answers or requests lost right before.
func network(ctx context.Context, b *bench) error {
	c, err := natscluster.Start(filepath.Join(b.dir, "nats"), 1, nil)
	if err != nil {
		return err
	}
	defer func() { b.stop(); c.Close() }()
	p, err := newProxy(c.NodeURL(0)[len("nats://"):])
	if err != nil {
		return err
	}
	defer p.close()
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
	err = b.repeat(ctx, func() error {
		if side := b.random.IntN(3); side <= fromServer {
			p.swallow(side, true)
			sleep(ctx, time.Duration(b.random.IntN(300))*time.Millisecond)
			p.cut()
			p.swallow(side, false)
			return nil
		}
		p.cut()
		return nil
	})
	if err == nil {
		err = b.count(ctx)
	}
	if err != nil {
		return err
	}
	return errCounted
}
