package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/pipeline"
)

func (c *cli) dlqLogCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show who replayed, edited, tried and purged which dead letters",
		Args:  positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usagef("--limit is %d; it takes a number from 0, 0 shows all", limit)
			}
			return c.auditLog(cmd.Context(), limit)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "show the newest `N`; 0 shows all")
	return cmd
}

func (c *cli) auditLog(ctx context.Context, limit int) error {
	nc, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	lines, err := pipeline.ReadAudit(ctx, nc, limit)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(append([]pipeline.AuditLine{}, lines...))
	}
	rows := [][]string{{"TIME", "BY", "ACTION", "SEQ", "PIPELINE", "REASON", "WHAT"}}
	for _, l := range lines {
		rows = append(rows, []string{
			l.Time.Format(time.RFC3339), printable(l.By), l.Action, strconv.FormatUint(l.Letter.Sequence, 10), l.Letter.Pipeline, l.Letter.Reason, printable(l.What()),
		})
	}
	if len(lines) == 0 {
		return nil
	}
	return table(c.stdout, rows)
}
