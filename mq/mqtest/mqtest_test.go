package mqtest_test

import (
	"log/slog"
	"testing"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/mq/mqtest"
)

func TestEmbeddedNATS(t *testing.T) {
	mqtest.Run(t, func(t *testing.T) (mq.Publisher, mq.Subscriber) {
		q, err := mq.NewEmbedded(t.TempDir(), 64<<20, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return q, q
	})
}
