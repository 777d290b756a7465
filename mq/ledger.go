package mq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	ledgerFile  = "STREAMS"
	ledgerEvery = 2 * time.Second
	ledgerWait  = 5 * time.Second
)

// ErrStoreDamaged is returned by Open when a stream's files are there but the
// server cannot tell what they are.
var ErrStoreDamaged = errors.New("the store is damaged")

// ledger is what the streams held a moment ago, in a file beside them. The
// server takes what it finds in a damaged store for all that there ever was.
type ledger struct {
	Time    time.Time           `json:"time"`
	Streams map[string]lastSeen `json:"streams"`
}

// lastSeen is a stream as the ledger knows it.
type lastSeen struct {
	Created  time.Time `json:"created"`
	First    uint64    `json:"first"`
	Last     uint64    `json:"last"`
	Messages uint64    `json:"messages"`
	Deleted  int       `json:"deleted,omitempty"` // between first and last
	// Trims is whether the stream drops messages by itself.
	Trims bool `json:"trims,omitempty"`
}

// Damage is what a stream held when the store was last looked at, and does not
// hold any more. Messages that were stored after that look are not counted.
type Damage struct {
	Stream  string
	Looked  time.Time
	Gone    bool   // the whole stream
	Anew    bool   // a stream of this name is there, but another one
	End     uint64 // messages at its end
	Missing uint64 // messages before that, unless somebody deleted them after the look
	Last    uint64 // the sequence at which it ends now
}

// String says it for people.
func (d Damage) String() string {
	switch {
	case d.Gone:
		return fmt.Sprintf("stream %s is gone, with %d messages", d.Stream, d.Missing)
	case d.Anew:
		return fmt.Sprintf("stream %s is another one than before, which held %d messages", d.Stream, d.Missing)
	case d.Missing == 0:
		return fmt.Sprintf("stream %s has lost %d messages at its end, which is at %d now", d.Stream, d.End, d.Last)
	case d.End == 0:
		return fmt.Sprintf("stream %s lacks %d messages: they are lost, unless somebody deleted them right before the end", d.Stream, d.Missing)
	}
	return fmt.Sprintf("stream %s has lost %d messages at its end, which is at %d now, and lacks %d before that", d.Stream, d.End, d.Last, d.Missing)
}

// look reads what the streams hold now.
func (e *EmbeddedNATS) look(ctx context.Context) (ledger, error) {
	l := ledger{Time: time.Now().UTC().Round(time.Millisecond), Streams: map[string]lastSeen{}}
	list := e.js.ListStreams(ctx)
	for i := range list.Info() {
		c := &i.Config
		l.Streams[c.Name] = lastSeen{
			Created: i.Created, First: i.State.FirstSeq, Last: i.State.LastSeq, Messages: i.State.Msgs, Deleted: i.State.NumDeleted,
			Trims: c.Retention != jetstream.LimitsPolicy || c.Discard == jetstream.DiscardOld || c.MaxAge > 0 || c.MaxMsgsPerSubject > 0,
		}
	}
	if err := list.Err(); err != nil {
		return ledger{}, fmt.Errorf("list streams: %w", err)
	}
	return l, nil
}

// compare finds what a ledger knows and the streams do not hold.
func (l ledger) compare(now ledger) []Damage {
	var all []Damage
	for name, was := range l.Streams {
		is, there := now.Streams[name]
		d := Damage{Stream: name, Looked: l.Time, Last: is.Last}
		switch {
		case !there:
			d.Gone, d.Missing = true, was.Messages
		case !is.Created.Equal(was.Created):
			d.Anew, d.Missing = true, was.Messages
		default:
			d.End, d.Missing = was.lost(is)
		}
		if d.End+d.Missing > 0 {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Damage) int { return strings.Compare(a.Stream, b.Stream) })
	return all
}

// lost is how many messages are not there that were: at the end, and before it.
// A stream that drops messages by itself may have done so before it.
func (was lastSeen) lost(is lastSeen) (end, before uint64) {
	if is.Last > was.Last { // it went on after the look
		if is.First > was.First {
			before = min(is.First, was.Last+1) - was.First
			before -= min(uint64(was.Deleted), before)
		}
		before += uint64(max(0, is.Deleted-was.Deleted))
	} else {
		end = min(was.Last-is.Last, was.Messages)
		before = was.Messages - min(is.Messages, was.Messages)
		before -= min(end, before)
	}
	if was.Trims {
		before = 0
	}
	return end, before
}

// readLedger is empty when there is none, or none that can be read.
func (s *store) readLedger() (l ledger, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, ledgerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		return ledger{}, fmt.Errorf("read what the streams held: %w", err)
	}
	return l, nil
}

// compare looks for what the streams held when the store was last looked at, and
// tells what is missing. A stream whose files are still there is not given up:
// what would be made in its place could not be told from it. In a cluster the
// other servers have what is missing here.
func (e *EmbeddedNATS) compare(ctx context.Context) error {
	if e.srv.JetStreamIsClustered() {
		return nil
	}
	was, err := e.store.readLedger()
	if err != nil {
		e.log.Warn("nobody can say whether the store is whole", "error", err)
		return nil
	}
	now, err := e.look(ctx)
	if err != nil {
		return err
	}
	for _, d := range was.compare(now) {
		if files := e.store.streamDir(d.Stream); d.Gone && files != "" {
			return fmt.Errorf("%w: stream %s held %d messages at %s, and its description cannot be read; put %s back from a backup, or move it away to go on without them",
				ErrStoreDamaged, d.Stream, d.Missing, d.Looked.Format(time.RFC3339), files)
		}
		e.log.Error("the store is damaged: "+d.String(), "stream", d.Stream, "lost", d.End+d.Missing, "last", d.Last, "looked", d.Looked.Format(time.RFC3339Nano))
		e.mu.Lock()
		e.damages = append(e.damages, d)
		e.mu.Unlock()
	}
	return nil
}

// streamDir is the folder with a stream's messages, or "".
func (s *store) streamDir(stream string) string {
	dir := filepath.Join(s.dir, "jetstream", "$G", "streams", stream)
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// Damages are what the embedded server's streams lacked when the store was
// opened, compared with what they had held.
func (e *EmbeddedNATS) Damages() []Damage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.damages)
}

// keepLedger writes down what the streams hold, as long as that changes.
func (e *EmbeddedNATS) keepLedger() {
	t := time.NewTicker(ledgerEvery)
	defer t.Stop()
	var last map[string]lastSeen
	said := false
	for stop := false; !stop; {
		select {
		case <-e.stopping: // and once more what is there at the end
			stop = true
		case <-t.C:
		}
		now, err := e.writeLedger(last)
		switch {
		case err == nil:
			last, said = now, false
		case !said && !stop:
			said = true
			e.log.Warn("what the streams hold is not written down", "error", err)
		}
	}
}

// writeLedger writes it unless the streams hold what they held last.
func (e *EmbeddedNATS) writeLedger(last map[string]lastSeen) (map[string]lastSeen, error) {
	if e.srv.JetStreamIsClustered() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerWait)
	defer cancel()
	var now ledger
	err := e.Steady(func() (err error) {
		now, err = e.look(ctx)
		return err
	})
	if err != nil || maps.Equal(now.Streams, last) {
		return now.Streams, err
	}
	text, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}
	return now.Streams, writeFile(filepath.Join(e.store.dir, ledgerFile), text)
}
