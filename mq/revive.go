package mq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

const (
	reviveEvery = time.Second
	// reviveMost is between two openings of a store that soon fails again.
	reviveMost = time.Minute
	// reviveRoom must be free before the store is opened again: it writes index
	// files at once.
	reviveRoom = 4 << 20
)

// revive turns JetStream off and on after a disk was full, or could not be
// written: a stream that had a write error refuses everything from then on, and
// sometimes the server turns JetStream off altogether. Both are for good.
func (e *EmbeddedNATS) revive() {
	t := time.NewTicker(reviveEvery)
	defer t.Stop()
	said := false
	var wait time.Duration // grows while it does not help
	var last time.Time
	for {
		var now time.Time
		select {
		case <-e.stopping:
			return
		case now = <-t.C:
		}
		if e.srv.JetStreamEnabled() && !e.srvLog.stuck.Load() {
			continue
		}
		if now.Sub(last) > 2*reviveMost {
			wait = 0
		}
		err := room(e.store.dir)
		if err == nil {
			if now.Sub(last) < wait {
				continue
			}
			wait, last = min(max(2*wait, reviveEvery), reviveMost), now
			err = e.reopen()
		}
		switch {
		case err == nil:
			said = false
			e.log.Warn("the store can be written again, and is opened again", "store", e.store.dir)
		case !said:
			said = true
			e.log.Error("the store cannot be written; nothing is stored until it can", "store", e.store.dir, "error", err)
		}
	}
}

// Steady runs f while the embedded store is not being opened again: meanwhile
// the server says of streams and consumers that they are not there, and whoever
// made them would make others.
func (e *EmbeddedNATS) Steady(f func() error) error {
	e.opening.RLock()
	defer e.opening.RUnlock()
	return f()
}

// reopen ends JetStream, if it is still there, and begins it anew on what the
// store holds. The server keeps its former subscription to the API besides: from
// then on requests are carried out twice, and the first answer counts. Ours
// take no harm from that.
func (e *EmbeddedNATS) reopen() error {
	e.opening.Lock()
	defer e.opening.Unlock()
	if err := e.srv.ShutdownJetStream(); err != nil {
		return err
	}
	if e.srv.JetStreamConfig() != nil { // the server's own end of it is under way
		return errors.New("JetStream is still ending")
	}
	e.srvLog.stuck.Store(false)
	err := e.srv.EnableJetStream(&natsserver.JetStreamConfig{
		StoreDir: e.store.dir, MaxStore: serverMaxStore, MaxMemory: serverMaxMemory,
		SyncAlways: e.opts.SyncInterval == 0, SyncInterval: e.opts.SyncInterval, Strict: true,
	})
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
		err = e.compare(ctx)
		cancel()
	}
	if err != nil {
		return errors.Join(err, e.srv.ShutdownJetStream())
	}
	return nil
}

// room proves that a few megabytes can be written in dir.
func room(dir string) error {
	path := filepath.Join(dir, ".room")
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	_, err = f.Write(make([]byte, reviveRoom))
	if err = errors.Join(err, f.Sync(), f.Close(), os.Remove(path)); err != nil {
		return fmt.Errorf("look for room: %w", err)
	}
	return nil
}
