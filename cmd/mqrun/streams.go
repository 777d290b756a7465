package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/pipeline"
)

func (c *cli) streamsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "streams",
		Short: "Look at the layout of the streams",
		Args:  subcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "plan",
		Short: "Show which subjects a new store would put into another stream",
		Long: `A subject stays in the stream that got it first, whatever the configuration says
later: a consumer whose filter left its stream would go on silently. This compares
the streams with those of a new store, and changes nothing. It asks the running
mqrun, or opens the store when none runs.`,
		Args: positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.planStreams(cmd.Context()) },
	})
	return cmd
}

func (c *cli) planStreams(ctx context.Context) (err error) {
	cfg, err := c.load(c.configs)
	if err != nil {
		return err
	}
	js, done, err := c.jetStream(ctx, cfg)
	if err != nil {
		return fmt.Errorf("plan streams: %w", err)
	}
	defer func() { err = also(err, done()) }()
	moves, err := pipeline.Moves(ctx, js, cfg)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(append([]pipeline.Move{}, moves...))
	}
	if len(moves) == 0 {
		if !c.quiet {
			fmt.Fprintln(c.stderr, "every subject is where a new store would put it")
		}
		return nil
	}
	rows := [][]string{{"SUBJECT", "IS IN", "WOULD BE IN", "MESSAGES"}}
	for _, m := range moves {
		to := m.To
		if to == "" {
			to = "(unused)"
		}
		rows = append(rows, []string{m.Subject, m.From, to, strconv.FormatUint(m.Messages, 10)})
	}
	return table(c.stdout, rows)
}
