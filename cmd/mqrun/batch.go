package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/pipeline"
)

func (c *cli) batchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "batch",
		Short: "Steer pipelines with commit: batch",
		Args:  subcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "set-position PIPELINE SEQUENCE",
		Short: "Say behind which message a pipeline goes on",
		Long: `A pipeline with commit: batch keeps its position in its output stream. When that is
gone, or belongs to an earlier input stream of the same name, the pipeline does not
start: beginning anew would do everything again. This writes the position: the
sequence of the last message that is done, 0 for none.

Stop mqrun first; the command then opens the store. With -s it asks that server.`,
		Args: positional(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			sequence, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return usagef("%q is no sequence: 0 or more", args[1])
			}
			return c.setPosition(cmd.Context(), args[0], sequence)
		},
	})
	return cmd
}

func (c *cli) setPosition(ctx context.Context, name string, sequence uint64) (err error) {
	cfg, err := c.load(c.configs)
	if err != nil {
		return err
	}
	js, done, err := c.jetStream(ctx, cfg)
	if err != nil {
		return fmt.Errorf("set position: %w", err)
	}
	defer func() { err = also(err, done()) }()
	stream, was, err := pipeline.SetPosition(ctx, js, cfg, name, sequence)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(map[string]any{"pipeline": name, "stream": stream, "sequence": sequence, "was": was})
	}
	_, err = fmt.Fprintf(c.stdout, "%s goes on behind message %d of %s (it was at %d)\n", name, sequence, stream, was)
	return err
}
