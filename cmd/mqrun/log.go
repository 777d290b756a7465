package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// logger writes to stderr as the flags say.
func (c *cli) logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		level = slog.LevelInfo // checked before
	}
	if c.quiet {
		level = max(level, slog.LevelWarn)
	}
	switch {
	case c.logFormat == "json":
		return slog.New(slog.NewJSONHandler(c.stderr, &slog.HandlerOptions{Level: level}))
	case c.logFormat == "auto" && terminal(c.stderr):
		return slog.New(tint.NewTextHandler(c.stderr, &tint.Options{
			Level: level, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != "",
		}))
	}
	return slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: level}))
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
