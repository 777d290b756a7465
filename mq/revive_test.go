//go:build !race

// The server itself writes a field without a lock when JetStream begins again
// (server/jetstream_api.go, setJetStreamExportSubs), which the detector reports.

package mq_test

import (
	"strings"
	"testing"

	"github.com/mqrun/mqrun/mq"
)

// TestLIF05_TheStoreIsOpenedAgain: JetStream that has turned itself off comes
// back, with what it held and under the same connections.
func TestLIF05_TheStoreIsOpenedAgain(t *testing.T) {
	log := &logs{}
	q := open(t, mq.Options{Logger: log.logger()})
	if err := q.Publish(deadline(t), "ingest.a", nil); err != nil {
		t.Fatal(err)
	}
	if err := q.GetServer().ShutdownJetStream(); err != nil {
		t.Fatal(err)
	}
	until(t, "the store", func() bool { return q.Publish(deadline(t), "ingest.a", nil) == nil })
	st, err := q.JetStream().Stream(deadline(t), mq.StreamName())
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d messages", n)
	}
	until(t, "the log", func() bool { return strings.Contains(log.String(), "the store can be written again") })
}
