package pipeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mqrun/mqrun/config"
)

// keyOf tells which messages have to be handled one after the other, nil when
// none have.
func keyOf(order string) func(*slot) string {
	switch name, isHeader := strings.CutPrefix(order, config.OrderHeader); {
	case isHeader:
		return func(s *slot) string { return firstHeader(s.msg.Header, name) }
	case order == config.OrderStrict:
		return func(*slot) string { return "" }
	case order == config.OrderSubject:
		return func(s *slot) string { return s.subject }
	}
	return nil
}

// firstHeader is the first value of a header, whatever the case of its name.
// Of several spellings in one message the first by the alphabet counts, so that
// it is always the same one.
func firstHeader(h map[string][]string, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if v := h[k]; len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

// lanes keep the messages of one key in line: only the first one is with a
// worker, settled, or held back for its next attempt. Its mutex is innermost.
type lanes struct {
	key func(*slot) string

	mu   sync.Mutex
	by   map[string]*lane
	held int  // messages in lanes whose first one is held back
	shut bool // all goes back to the server
}

// lane is the line of one key.
type lane struct {
	key   string
	slots []*slot
	due   time.Time // the first one is held back until then; zero: it is not
}

func newLanes(key func(*slot) string) *lanes {
	return &lanes{key: key, by: map[string]*lane{}}
}

// push lets a message stand in line and reports whether it is the first.
// Nothing may be pushed into lanes that are shut.
func (t *lanes) push(s *slot) bool {
	key := t.key(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.by[key]
	if l == nil {
		l = &lane{key: key}
		t.by[key] = l
	}
	s.lane = l
	l.slots = append(l.slots, s)
	if !l.due.IsZero() {
		t.held++
	}
	return len(l.slots) == 1
}

// pop takes the first of a line out and returns the next one, which may begin.
func (t *lanes) pop(s *slot) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := s.lane
	if l == nil {
		return nil
	}
	s.lane = nil
	l.slots[0] = nil
	l.slots = l.slots[1:]
	if len(l.slots) == 0 {
		delete(t.by, l.key)
		return nil
	}
	return l.slots[0]
}

// hold keeps the first of a line, and with it the line, back until due. It
// reports false when all goes back to the server.
func (t *lanes) hold(s *slot, due time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut || s.lane == nil {
		return false
	}
	if s.lane.due.IsZero() {
		t.held += len(s.lane.slots)
	}
	s.lane.due = due
	return true
}

// wake ends hold. It reports false when the message has gone meanwhile.
func (t *lanes) wake(s *slot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.lane == nil || s.lane.due.IsZero() {
		return false
	}
	s.lane.due = time.Time{}
	t.held -= len(s.lane.slots)
	return true
}

// clear takes out all that stand behind another one or are held back. What is
// in work or waits for a worker stays.
func (t *lanes) clear() []*slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = true
	var out []*slot
	for key, l := range t.by {
		stay := 1
		if !l.due.IsZero() {
			stay = 0
			t.held -= len(l.slots)
			l.due = time.Time{}
			delete(t.by, key)
		}
		for _, s := range l.slots[stay:] {
			s.lane = nil
			out = append(out, s)
		}
		clear(l.slots[stay:])
		l.slots = l.slots[:stay]
	}
	slices.SortFunc(out, func(a, b *slot) int { return cmp.Compare(a.info.Sequence, b.info.Sequence) })
	return out
}

// open ends the state that clear left.
func (t *lanes) open() {
	t.mu.Lock()
	t.shut = false
	t.mu.Unlock()
}

// waiting is how many messages are held back, with the longest such line.
func (t *lanes) waiting() (n int, key string, due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	longest := 0
	for _, l := range t.by {
		if !l.due.IsZero() && (len(l.slots) > longest || len(l.slots) == longest && l.key < key) {
			longest, key, due = len(l.slots), l.key, l.due
		}
	}
	return t.held, key, due
}

func (t *lanes) behind() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}
