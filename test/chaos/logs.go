package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// logs counts the lines that the guest writes, one for each call, and mqrun's
// own by their text; it keeps the last of those.
type logs struct {
	mu    sync.Mutex
	calls map[string][]int // by pipeline and input: the processes that were called with it
	said  map[string]int
	named map[string]int // messages of a stream that mqrun said to be lost
	last  []string
}

func newLogs() *logs {
	return &logs{calls: map[string][]int{}, said: map[string]int{}, named: map[string]int{}}
}

const keptLines = 40

// of is where a process logs to.
func (l *logs) of(process int) io.Writer {
	return &lines{take: func(text []byte) { l.line(process, text) }}
}

func (l *logs) line(process int, text []byte) {
	var line struct {
		Msg, Source, Pipeline, Stream string
		Lost                          int
	}
	err := json.Unmarshal(text, &line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && line.Source == "log" {
		key := line.Pipeline + " " + line.Msg
		l.calls[key] = append(l.calls[key], process)
		return
	}
	l.said[line.Msg]++
	l.named[line.Stream] += line.Lost
	if strings.HasPrefix(line.Msg, "work: ") { // a verdict on one message
		return
	}
	if l.last = append(l.last, string(text)); len(l.last) > keptLines {
		l.last = l.last[1:]
	}
}

// handled is how many calls there were.
func (l *logs) handled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, by := range l.calls {
		n += len(by)
	}
	return n
}

// needless is how many inputs were handled again although no process that was
// killed had begun them. It counts right where every input takes one call.
func (l *logs) needless(killed []int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, by := range l.calls {
		if len(by) > 1 && !slices.ContainsFunc(by, func(p int) bool { return slices.Contains(killed, p) }) {
			n++
		}
	}
	return n
}

// count is how often mqrun said a text.
func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said[text]
}

// lost is how many messages of a stream mqrun has said to be lost.
func (l *logs) lost(stream string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.named[stream]
}

// await waits until mqrun has said it more than n times.
func (l *logs) await(ctx context.Context, text string, n int) bool {
	for l.count(text) <= n {
		if !sleep(ctx, 10*time.Millisecond) {
			return false
		}
	}
	return true
}

func (l *logs) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n") + "\n"
}

// lines cuts what is written into lines. The end of a process can leave half of
// one, which is no line.
type lines struct {
	take func([]byte)
	rest []byte
}

func (w *lines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	left := w.rest
	for {
		line, rest, ok := bytes.Cut(left, []byte("\n"))
		if !ok {
			break
		}
		w.take(line)
		left = rest
	}
	w.rest = append(w.rest[:0:0], left...)
	return len(p), nil
}
