package mq

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// serverLog hands the server's log lines to slog. The server's start-up chatter
// is of no use to people who asked for a queue: notices are debug lines.
type serverLog struct {
	log   *slog.Logger
	fatal chan error // the first fatal line; the server itself would end the process
	once  sync.Once

	stuck atomic.Bool // a stream takes no writes until it is opened again

	mu     sync.Mutex
	losses []Loss
}

// Loss is a stream of the store that ended before the message that a consumer
// had been given: a power cut took its end, or its files are an older copy. The
// server has set the consumer back; who gives ids to what messages cause must
// know that new messages have the sequences of lost ones.
type Loss struct {
	Stream, Consumer string
	Delivered, Last  uint64
}

// lossFormat is the server's only word of a loss (server/consumer.go,
// addConsumerWithAssignment): afterwards nothing shows it any more.
const lossFormat = "JetStream consumer '%s > %s > %s' delivered sequence %d past last stream sequence of %d"

func (l *serverLog) noteLoss(v []any) {
	if len(v) != 5 {
		return
	}
	stream, ok1 := v[1].(string)
	consumer, ok2 := v[2].(string)
	delivered, ok3 := v[3].(uint64)
	last, ok4 := v[4].(uint64)
	if ok1 && ok2 && ok3 && ok4 {
		l.mu.Lock()
		l.losses = append(l.losses, Loss{stream, consumer, delivered, last})
		l.mu.Unlock()
	}
}

func newServerLog(l *slog.Logger) *serverLog {
	return &serverLog{log: l.With("part", "nats"), fatal: make(chan error, 1)}
}

func (l *serverLog) line(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, fmt.Sprintf(format, v...))
	}
}

func (l *serverLog) Noticef(format string, v ...any) { l.line(slog.LevelDebug, format, v) }
func (l *serverLog) Debugf(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }
func (l *serverLog) Tracef(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }

// Errorf also notes that a file could not be written: that stream refuses
// everything from then on, even when the disk has room again.
func (l *serverLog) Errorf(format string, v ...any) {
	if strings.Contains(format, "ritical write error") {
		l.stuck.Store(true)
	}
	l.line(slog.LevelError, format, v)
}

func (l *serverLog) Warnf(format string, v ...any) {
	if format == lossFormat {
		l.noteLoss(v)
	}
	l.line(slog.LevelWarn, format, v)
}

// Fatalf is where the server expects the process to end (server/log.go). While
// it starts, the error goes to Open; later there is nobody to return it to.
func (l *serverLog) Fatalf(format string, v ...any) {
	first := false
	l.once.Do(func() {
		first = true
		l.fatal <- fmt.Errorf(format, v...)
	})
	if !first {
		l.line(slog.LevelError, format, v)
	}
}
