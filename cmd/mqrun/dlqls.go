package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

func (c *cli) dlqListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "ls [PIPELINE]",
		Aliases: []string{"list"},
		Short:   "List dead letters and count their reasons",
		Args:    positional(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--limit is %d; it takes a number from 0, 0 lists all", limit)
			}
			pipeline := ""
			if len(args) == 1 {
				pipeline = args[0]
			}
			return c.listLetters(cmd.Context(), pipeline, limit)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "list the newest `N`; 0 lists all. All are counted")
	return cmd
}

type letters struct {
	Total   int            `json:"total"`
	Reasons map[string]int `json:"reasons"`
	Letters []letter       `json:"letters"` // the newest, oldest first
}

func (c *cli) listLetters(ctx context.Context, pipeline string, limit int) error {
	nc, st, err := c.deadLetters(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	l := letters{Reasons: map[string]int{}, Letters: []letter{}}
	err = eachLetter(ctx, st, func(d letter) {
		if pipeline != "" && d.Pipeline != pipeline {
			return
		}
		l.Total++
		l.Reasons[d.Reason]++
		if l.Letters = append(l.Letters, d); limit > 0 && len(l.Letters) > limit {
			l.Letters = l.Letters[1:]
		}
	})
	if err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	if c.json() {
		return c.printJSON(l)
	}
	return c.printLetters(l, time.Now())
}

// eachLetter calls f with every dead letter that is there now, oldest first.
// Only the headers travel.
func eachLetter(ctx context.Context, st jetstream.Stream, f func(letter)) error {
	state := st.CachedInfo().State
	if state.Msgs == 0 {
		return nil
	}
	consumer, err := st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		size, _ := strconv.Atoi(m.Headers().Get(nats.MsgSize))
		f(readLetter(meta.Sequence.Stream, meta.Timestamp, m.Headers(), size))
		if meta.Sequence.Stream >= state.LastSeq || meta.NumPending == 0 {
			return nil
		}
	}
}

func (c *cli) printLetters(l letters, now time.Time) error {
	if l.Total == 0 {
		if !c.quiet {
			fmt.Fprintln(c.stderr, "no dead letters")
		}
		return nil
	}
	rows := [][]string{{"SEQ", "AGE", "PIPELINE", "STEP", "REASON", "ATTEMPTS", "SIZE", "SUBJECT"}}
	for _, d := range l.Letters {
		rows = append(rows, []string{
			strconv.FormatUint(d.Sequence, 10), age(now.Sub(d.Time)), d.Pipeline, d.Step, d.Reason,
			strconv.Itoa(d.Attempts), size(int64(d.Size)), d.Subject,
		})
	}
	if err := table(c.stdout, rows); err != nil {
		return err
	}
	if c.quiet {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(l.Reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.Reasons[b], l.Reasons[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, l.Reasons[name])
	}
	fmt.Fprintf(c.stderr, "%d in all: %s\n", l.Total, strings.Join(names, ", "))
	return nil
}
