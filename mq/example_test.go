package mq_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/mqrun/mqrun/mq"
)

func Example() {
	dir, err := os.MkdirTemp("", "mq")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	q, err := mq.NewEmbedded(dir, 64<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()

	ctx := context.Background()
	if err := q.Publish(ctx, "ingest.orders", []byte("one coffee"), mq.WithHeader("Table", "7")); err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan bool)
	err = q.Subscribe(ctx, "ingest.>", "kitchen", func(m *mq.Message) error {
		fmt.Printf("%s: %s for table %s\n", m.Subject, m.Data, mq.HeadersFromContext(m.Ctx).Get("Table"))
		defer close(done)
		return m.DoubleAck(m.Ctx) // confirmed: it does not come again
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-done
	// Output: ingest.orders: one coffee for table 7
}
