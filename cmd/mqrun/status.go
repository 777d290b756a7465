package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/pipeline"
)

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the pipelines of the running mqrun do",
		Long: `Asks the running mqrun, or every one that shares the server given with -s. Counts
are of the process since its start. Ends with 1 when a pipeline takes no messages.`,
		Args: positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.status(cmd.Context()) },
	}
}

func (c *cli) status(ctx context.Context) error {
	nc, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	all, err := c.statuses(ctx, nc)
	if err != nil {
		return err
	}
	stopped := 0
	for _, s := range all {
		for _, p := range s.Pipelines {
			if !p.Ready() {
				stopped++
			}
		}
	}
	if c.json() {
		err = c.printJSON(all)
	} else {
		err = c.printStatuses(all)
	}
	if err == nil && stopped > 0 {
		return fmt.Errorf("%s: no messages are taken", plural(stopped, "pipeline"))
	}
	return err
}

func (c *cli) printStatuses(all []processStatus) error {
	for i, s := range all {
		if !c.quiet {
			if i > 0 {
				fmt.Fprintln(c.stdout)
			}
			fmt.Fprintf(c.stdout, "%s, mqrun %s, up %s, watching: %s, generation %d (%s, by %s)\n", s.Process, s.Version, age(time.Since(s.Started)), s.Reload.Watching, s.Generation, reloadWords(s), s.Reload.By)
			for _, p := range s.Reload.Problems {
				fmt.Fprintf(c.stdout, "  %s\n", printable(p))
			}
			for _, ro := range s.Rollouts {
				if ro.State == pipeline.RolloutTrying {
					fmt.Fprintf(c.stdout, "  %s, for %s\n", ro, age(time.Since(ro.Since)))
				}
			}
		}
		rows := [][]string{{"PIPELINE", "STATE", "PENDING", "IN FLIGHT", "HANDLED", "ACKED", "RETRIED", "DEAD", "OUTPUTS", "WHY"}}
		for _, p := range s.Pipelines {
			pending := "-"
			if p.Pending != nil {
				pending = strconv.FormatUint(*p.Pending, 10)
			}
			n := func(v int64) string { return strconv.FormatInt(v, 10) }
			rows = append(rows, []string{
				p.Name, p.State, pending, strconv.Itoa(p.InFlight), n(p.Handled), n(p.Acked), n(p.Retried), n(p.Dead), n(p.Outputs), printable(p.Why),
			})
		}
		if err := table(c.stdout, rows); err != nil {
			return err
		}
		for _, p := range s.Pipelines {
			if len(p.Trusted) > 0 && !c.quiet {
				fmt.Fprintf(c.stdout, "%s runs without the meter, trusted: %s\n", p.Name, strings.Join(p.Trusted, ", "))
			}
		}
	}
	return nil
}

func reloadWords(s processStatus) string {
	if len(s.Reload.Problems) > 0 {
		return "the last reload was refused: " + plural(len(s.Reload.Problems), "problem")
	}
	return "config " + s.Reload.Config
}
