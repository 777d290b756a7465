package mq

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// serverLog hands the server's log lines to slog. The server's start-up chatter
// is of no use to people who asked for a queue: notices are debug lines.
type serverLog struct {
	log   *slog.Logger
	fatal chan error // the first fatal line; the server itself would end the process
	once  sync.Once
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
func (l *serverLog) Warnf(format string, v ...any)   { l.line(slog.LevelWarn, format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.line(slog.LevelError, format, v) }
func (l *serverLog) Debugf(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }
func (l *serverLog) Tracef(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }

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
