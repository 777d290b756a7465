package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestHOT08_SignalsDuringReload: SIGHUP while a reload waits for a handler asks
// for one more, and SIGTERM ends the process with the handler's work done.
func TestHOT08_SignalsDuringReload(t *testing.T) {
	p := inFlight(t, "3")
	// ack_wait is the consumer's: the pipeline is drained first.
	writeFile(t, filepath.Join(p.dir, "pipelines.yaml"), strings.Replace(sleeping, "ack_wait: 10m", "ack_wait: 9m", 1))
	p.signal(t, syscall.SIGHUP)
	p.signal(t, syscall.SIGHUP)
	_, js := p.connect(t)
	until(t, "nothing more is pulled", func() bool { return consumerInfo(t, js, "MQRUN", "mqrun-sleep").NumWaiting == 0 })
	p.signal(t, syscall.SIGTERM)
	if code := p.end(t); code != exitDone {
		t.Fatalf("exit code %d, want 0", code)
	}
	p = startRun(t, p.dir)
	_, js = p.connect(t)
	until(t, "all are handled", func() bool {
		return streamMsgs(t, js, "MQRUN_SLEEP") == 6 && consumerInfo(t, js, "MQRUN", "mqrun-sleep").NumAckPending == 0
	})
}
