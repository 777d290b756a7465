package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/subject"
)

type subOptions struct {
	last, count int
	payload     bool
}

func (c *cli) subCommand() *cobra.Command {
	var o subOptions
	cmd := &cobra.Command{
		Use:   "sub SUBJECT",
		Short: "Print the messages of a subject as they come",
		Long: `Prints what is stored on the subject from now on, with headers, until it is
interrupted or --count is reached. Reading takes nothing away from anybody. A
subject that no stream holds is listened to. With -o json each message is one line.`,
		Example: `  mqrun sub quakes.strong
  mqrun sub 'quakes.>' --last 10 --count 10
  mqrun sub alerts.outbox --payload | jq .`,
		Args: positional(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return c.sub(cmd.Context(), args[0], o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.last, "last", 0, "begin with the last `N` that are stored, of each stream")
	f.IntVar(&o.count, "count", 0, "end after `N` messages; 0 goes on")
	f.BoolVar(&o.payload, "payload", false, "print the payloads alone, byte for byte, each with a line break")
	return cmd
}

// heard is one message.
type heard struct {
	Subject  string              `json:"subject"`
	Stream   string              `json:"stream,omitempty"`
	Sequence uint64              `json:"sequence,omitempty"`
	Time     *time.Time          `json:"time,omitempty"`
	Headers  map[string][]string `json:"headers"`
	Data     []byte              `json:"data"`           // base64
	JSON     json.RawMessage     `json:"json,omitempty"` // the payload, when it is JSON
}

func (c *cli) sub(ctx context.Context, s string, o subOptions) error {
	switch {
	case subject.ValidFilter(s) != nil:
		return usagef("%q is no subject", s)
	case o.last < 0 || o.count < 0:
		return usagef("--last and --count take numbers from 0")
	case o.payload && c.json():
		return usagef("--payload does not go with -o json")
	}
	nc, err := c.connect(ctx, reconnect)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	tails, err := pipeline.Tails(ctx, js, s, o.last)
	if err != nil {
		return err
	}
	messages := make(chan heard)
	stop, err := listen(ctx, nc, js, s, tails, messages)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", s, err)
	}
	defer stop()
	for n := 1; ; n++ {
		select {
		case m := <-messages:
			if err := c.printHeard(m, o); err != nil {
				return err
			}
			if n == o.count {
				return nil
			}
		case <-ctx.Done(): // how it is meant to end
			if errors.Is(context.Cause(ctx), errInterrupted) && o.count == 0 {
				return nil
			}
			return ctx.Err()
		}
	}
}

// listen reads every stream that holds the subject, or the wire when none does.
func listen(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, s string, tails []pipeline.Tail, out chan<- heard) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	put := func(m heard) {
		if json.Valid(m.Data) {
			m.JSON = m.Data
		}
		select {
		case out <- m:
		case <-ctx.Done():
		}
	}
	if len(tails) == 0 {
		_, err := nc.Subscribe(s, func(m *nats.Msg) { put(heard{Subject: m.Subject, Headers: m.Header, Data: m.Data}) })
		if err == nil {
			err = nc.FlushWithContext(ctx)
		}
		return cancel, err
	}
	var consuming []jetstream.ConsumeContext
	stop = func() {
		cancel()
		for _, c := range consuming {
			c.Stop()
		}
	}
	for _, t := range tails {
		con, err := js.OrderedConsumer(ctx, t.Stream, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{s}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: t.Start,
		})
		if err != nil {
			stop()
			return nil, err
		}
		cc, err := con.Consume(func(m jetstream.Msg) {
			h := heard{Subject: m.Subject(), Stream: t.Stream, Headers: m.Headers(), Data: m.Data()}
			if meta, err := m.Metadata(); err == nil {
				h.Sequence, h.Time = meta.Sequence.Stream, &meta.Timestamp
			}
			put(h)
		})
		if err != nil {
			stop()
			return nil, err
		}
		consuming = append(consuming, cc)
	}
	return stop, nil
}

func (c *cli) printHeard(m heard, o subOptions) error {
	var b bytes.Buffer
	switch {
	case o.payload:
		b.Write(m.Data)
		b.WriteByte('\n')
	case c.json():
		if m.Headers == nil {
			m.Headers = map[string][]string{}
		}
		if err := json.NewEncoder(&b).Encode(m); err != nil {
			return err
		}
	default:
		fmt.Fprintf(&b, "%s", printable(m.Subject))
		if m.Time != nil {
			fmt.Fprintf(&b, "  %s:%d  %s", m.Stream, m.Sequence, m.Time.UTC().Format(time.RFC3339))
		}
		fmt.Fprintf(&b, "  %s\n", size(int64(len(m.Data))))
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			for _, v := range m.Headers[name] {
				fmt.Fprintf(&b, "  %s: %s\n", printable(name), printable(v))
			}
		}
		b.WriteString(payload(m.Data))
		b.WriteByte('\n')
	}
	if _, err := c.stdout.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}
