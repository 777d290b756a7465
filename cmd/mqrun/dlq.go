package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/mq"
)

func (c *cli) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters, replay and remove them",
		Long:  "Dead letters are messages that a pipeline gave up, with the reason. They stay until they are removed.",
		Args:  subcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.dlqListCommand(), c.dlqShowCommand(), c.dlqReplayCommand(), c.dlqPurgeCommand(), c.dlqLogCommand())
	return cmd
}

// deadLetters connects to the stream of dead letters.
func (c *cli) deadLetters(ctx context.Context) (*nats.Conn, jetstream.Stream, error) {
	nc, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err == nil {
		var st jetstream.Stream
		if st, err = js.Stream(ctx, mq.DLQStreamName()); err == nil {
			return nc, st, nil
		}
	}
	nc.Close()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, fmt.Errorf("read dead letters: the server has no stream %s; is mqrun run still starting, or is -s another server?", mq.DLQStreamName())
	}
	return nil, nil, fmt.Errorf("read dead letters: %w", err)
}

// letter is a dead letter without its payload.
type letter struct {
	Sequence   uint64    `json:"sequence"`
	Time       time.Time `json:"time"`
	Pipeline   string    `json:"pipeline"`
	Step       string    `json:"step"`
	Plugin     string    `json:"plugin"`
	Reason     string    `json:"reason"`
	Error      string    `json:"error"`
	Attempts   int       `json:"attempts"`
	Deliveries int       `json:"deliveries"`
	Size       int       `json:"size"`
	Subject    string    `json:"subject"` // that the message had
	Stream     string    `json:"stream"`  // that it came from
	Original   uint64    `json:"original_sequence"`
}

func readLetter(seq uint64, at time.Time, h nats.Header, size int) letter {
	get := func(name string) string { return h.Get("Mqrun-" + name) }
	number := func(name string) int {
		n, _ := strconv.Atoi(get(name)) // written by mqrun; shown as 0 otherwise
		return n
	}
	original, _ := strconv.ParseUint(get("Sequence"), 10, 64)
	return letter{
		Sequence: seq, Time: at, Pipeline: get("Pipeline"), Step: get("Step"), Plugin: get("Plugin"),
		Reason: get("Reason"), Error: get("Error"), Attempts: number("Attempts"), Deliveries: number("Deliveries"),
		Size: size, Subject: get("Subject"), Stream: get("Stream"), Original: original,
	}
}
