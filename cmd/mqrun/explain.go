package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
)

func (c *cli) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain PIPELINE",
		Short: "Say in words what a pipeline does with a message",
		Long: `Reads the configuration and says where the pipeline reads and publishes, when it
tries again, when it gives up, and what becomes of messages that have been read.
When a server answers, the streams are those that it has; else those of a new store.`,
		Args: positional(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return c.explain(cmd.Context(), args[0]) },
	}
}

func (c *cli) explain(ctx context.Context, name string) error {
	cfg, err := c.load(c.configs)
	if err != nil {
		return err
	}
	var js jetstream.JetStream
	nc, err := c.connect(ctx)
	switch {
	case err == nil:
		defer nc.Close()
		if js, err = jetstream.New(nc); err != nil {
			return err
		}
	case c.server != "" || !errors.Is(err, mq.ErrNotRunning):
		return err
	}
	sections, err := pipeline.Explain(ctx, js, cfg, name)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(sections)
	}
	var rows [][]string
	for _, s := range sections {
		head := s.Name
		for _, line := range s.Lines {
			rows = append(rows, []string{head, line})
			head = ""
		}
	}
	if err := table(c.stdout, rows); err != nil {
		return err
	}
	if js == nil && !c.quiet {
		fmt.Fprintln(c.stderr, "mqrun run is not there; the streams are those of a new store")
	}
	return nil
}
