package pipeline

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// How often a message may be in a handler when the process ends.
const (
	crashesAlone = 2 // from here on it runs with nothing else of its pipeline in work
	crashesDead  = 3 // here it is a dead letter, without another run
)

// The journal's file: a head, then records. A record's sequence is zero while
// it is unused, and is written last and cleared first.
const (
	journalName   = "journal"
	journalFiles  = 64 // processes with one folder
	journalHead   = 512
	journalRecord = 512 // sequence, step, length of the key, key
	journalGrow   = 64  // records
	maxJournalKey = journalRecord - recordKey

	headRun      = 8  // of the process that wrote the records
	headStopping = 24 // 1: it was told to stop, and was ended in the middle of that

	recordSequence = 0
	recordStep     = 8
	recordLength   = 12
	recordKey      = 16
)

var journalMagic = []byte("mqrunJ1\n")

// journal finds the message that kills the process: what every worker is at is
// in a file before the guest is entered, and out of it after. Delivery counts
// are not durable, so a killer would be at its first attempt for ever.
//
// The stores are plain ones into mapped memory, which outlive the process but
// not the machine.
type journal struct {
	log    *slog.Logger
	run    string // this process, with the file
	before string // the last one; it is gone, or would still have the file

	mu     sync.Mutex
	file   *os.File // nil: nothing is recorded
	size   int64
	memory []memory
	head   memory
	free   []*record
	all    []*record
	full   bool // the file could not grow
}

// record is a place in the journal, for one worker at a time.
type record struct {
	memory
	key string // that is written
}

// crash is a record that a process left behind.
type crash struct {
	key  string // of the attempts bucket
	step int
}

// openJournal reads what the last process left in the folder and takes the
// file over. Without a folder there is no journal, and nil is returned.
func openJournal(dir string, log *slog.Logger) (*journal, string, []crash, error) {
	if dir == "" {
		return nil, "", nil, nil
	}
	f, err := lockedJournal(dir)
	if err != nil {
		return nil, "", nil, fmt.Errorf("open crash journal: %w", err)
	}
	old, err := io.ReadAll(f)
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("read crash journal: %w", err), f.Close())
	}
	j := &journal{log: log, file: f}
	if isJournal(old) {
		j.before = hex.EncodeToString(old[headRun:headStopping])
	}
	return j, j.before, readJournal(old), nil
}

// lockedJournal is the first file that no other process has. Several may share
// the folder when the server is not theirs; each takes over what one that is
// gone has left.
func lockedJournal(dir string) (*os.File, error) {
	path := filepath.Join(dir, journalName)
	for n := 1; ; n++ {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err = lockJournal(f); err == nil {
			return f, nil
		}
		if err = errors.Join(err, f.Close()); n == journalFiles {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		path = filepath.Join(dir, fmt.Sprintf("%s-%d", journalName, n+1))
	}
}

func isJournal(b []byte) bool { return len(b) >= journalHead && bytes.HasPrefix(b, journalMagic) }

// readJournal lists what was in work. A file that is no journal, or that a
// process left which was told to stop, lists nothing.
func readJournal(b []byte) (crashes []crash) {
	if !isJournal(b) || b[headStopping] != 0 {
		return nil
	}
	for b = b[journalHead:]; len(b) >= journalRecord; b = b[journalRecord:] {
		seq := binary.NativeEndian.Uint64(b[recordSequence:])
		n := binary.NativeEndian.Uint32(b[recordLength:])
		if seq == 0 || n == 0 || n > maxJournalKey {
			continue
		}
		crashes = append(crashes, crash{
			key:  string(b[recordKey:recordKey+n]) + "." + strconv.FormatUint(seq, 10),
			step: int(binary.NativeEndian.Uint32(b[recordStep:])),
		})
	}
	return crashes
}

// start empties the file for this process. Only now are the old records gone:
// they must have been counted.
func (j *journal) start() error {
	if j == nil {
		return nil
	}
	if err := j.file.Truncate(0); err != nil {
		return fmt.Errorf("empty crash journal: %w", err)
	}
	head := make([]byte, journalHead)
	copy(head, journalMagic)
	if _, err := rand.Read(head[headRun:headStopping]); err != nil {
		return err
	}
	m, err := j.extend(head)
	if err != nil {
		return err
	}
	j.head, j.run = m, hex.EncodeToString(head[headRun:headStopping])
	return j.grow()
}

// extend writes b to the end of the file and maps it. The bytes are written,
// not left as a hole: a store into a hole kills the process when the disk is
// full.
func (j *journal) extend(b []byte) (memory, error) {
	if _, err := j.file.WriteAt(b, j.size); err != nil {
		return memory{}, errors.Join(fmt.Errorf("write crash journal: %w", err), j.file.Truncate(j.size))
	}
	m, err := mapMemory(j.file, j.size, len(b))
	if err != nil {
		return memory{}, fmt.Errorf("map crash journal: %w", err)
	}
	j.size += int64(len(b))
	j.memory = append(j.memory, m)
	return m, nil
}

func (j *journal) grow() error {
	m, err := j.extend(make([]byte, journalGrow*journalRecord))
	if err != nil {
		return err
	}
	for i := range journalGrow {
		r := &record{memory: m.at(i*journalRecord, journalRecord)}
		j.free, j.all = append(j.free, r), append(j.all, r)
	}
	return nil
}

// begin notes that the message is about to be handled. The record is nil when
// none can be had.
func (j *journal) begin(id *identity, sequence uint64) *record {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	if len(j.free) == 0 && !j.full && j.file != nil {
		if err := j.grow(); err != nil {
			j.full = true
			j.log.Warn("the crash journal cannot grow; some messages in work are not in it", "error", err)
		}
	}
	if len(j.free) == 0 || j.file == nil {
		j.mu.Unlock()
		return nil
	}
	r := j.free[len(j.free)-1]
	j.free = j.free[:len(j.free)-1]
	j.mu.Unlock()
	if key := id.keyAt(sequence); key != r.key {
		if len(key) > maxJournalKey {
			j.end(r)
			return nil
		}
		r.key = key
		r.write(recordKey, []byte(key))
		r.put32(recordLength, uint32(len(key)))
	}
	r.put32(recordStep, 0)
	r.put64(recordSequence, sequence)
	return r
}

// step notes which step the message has come to.
func (r *record) step(n int) {
	if r != nil {
		r.put32(recordStep, uint32(n))
	}
}

// end clears the record: the guest has returned.
func (j *journal) end(r *record) {
	if r == nil {
		return
	}
	r.put64(recordSequence, 0)
	j.mu.Lock()
	j.free = append(j.free, r)
	j.mu.Unlock()
}

// stopping notes that the process was told to stop: what is in work when
// somebody loses patience with it has killed nothing.
func (j *journal) stopping() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		j.head.put32(headStopping, 1)
	}
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	var errs []error
	if len(j.free) == len(j.all) { // else somebody may still write
		for _, m := range j.memory {
			errs = append(errs, m.unmap())
		}
	}
	unlockJournal(j.file)
	errs = append(errs, j.file.Close())
	j.file, j.free = nil, nil
	return errors.Join(errs...)
}

// countCrashes adds one failed attempt to each message that was in work when
// the process run ended. Done twice for one run, it counts once.
func countCrashes(ctx context.Context, kv jetstream.KeyValue, run string, crashes []crash, log *slog.Logger) error {
	for _, c := range crashes {
		var f failures
		e, err := kv.Get(ctx, c.key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
		case err != nil:
			return fmt.Errorf("count crash of %s: %w", c.key, err)
		default:
			if err := json.Unmarshal(e.Value(), &f); err != nil {
				return fmt.Errorf("count crash of %s: %w", c.key, err)
			}
		}
		if f.Run == run {
			continue
		}
		f.Failed++
		f.Crashes++
		f.Run, f.Step = run, c.step
		f.Reason = reasonCrash
		f.Error = fmt.Sprintf("the process ended %s while the message was in the handler", times(f.Crashes))
		body, err := json.Marshal(f)
		if err == nil {
			_, err = kv.Put(ctx, c.key, body)
		}
		if err != nil {
			return fmt.Errorf("count crash of %s: %w", c.key, err)
		}
		log.Warn("the last process ended while this message was in a handler", "message", c.key, "crashes", f.Crashes)
	}
	return nil
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.Itoa(n) + " times"
}
