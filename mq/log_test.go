package mq

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestServerLogNeverEndsTheProcess(t *testing.T) {
	var buf bytes.Buffer
	l := newServerLog(slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.Fatalf("port %d", 1) // while starting: Open returns it
	l.Fatalf("port %d", 2) // later: the log has it
	if err := <-l.fatal; err == nil || err.Error() != "port 1" {
		t.Errorf("got %v", err)
	}
	l.Noticef("n%d", 3)
	l.Warnf("w%d", 4)
	l.Errorf("e%d", 5)
	l.Debugf("d%d", 6)
	l.Tracef("t%d", 7)
	want := []string{"ERROR msg=\"port 2\"", "DEBUG msg=n3", "WARN msg=w4", "ERROR msg=e5", "DEBUG msg=d6", "DEBUG msg=t7"}
	for _, w := range want {
		if !strings.Contains(buf.String(), w) {
			t.Errorf("log lacks %s: %s", w, buf.String())
		}
	}
	if strings.Contains(buf.String(), "port 1") {
		t.Error("what Open returns is logged as well")
	}
}

func TestNakDelayGrowsFromTheLeast(t *testing.T) {
	last := minNakDelay
	for n := range uint64(100) {
		d := nakDelay(n)
		if d < last || d > maxNakDelay {
			t.Errorf("delivery %d waits %v after %v", n, d, last)
		}
		last = d
	}
	if last != maxNakDelay {
		t.Errorf("it ends at %v", last)
	}
	if d := nakDelay(1 << 63); d != maxNakDelay {
		t.Errorf("got %v", d)
	}
}
