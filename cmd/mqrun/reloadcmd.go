package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/config"
)

func (c *cli) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Take the configuration as it is now",
		Long: `Tells the running mqrun, or every one that shares the server given with -s, to
read its configuration again, and prints what that changes: which pipelines are
kept, started, stopped, swapped (their next messages go through other modules or
settings) or restarted (drained first). Ends with 3 and the problems when the
configuration is refused; nothing has changed then.`,
		Args: positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.reload(cmd.Context()) },
	}
}

func (c *cli) reload(ctx context.Context) error {
	nc, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	answers, err := c.ask(ctx, nc, "reload", nil, reloadWait)
	if err != nil {
		return err
	}
	var all []reloadAnswer
	var problems config.Problems
	var errs []error
	for _, a := range answers {
		var r reloadAnswer
		if err := json.Unmarshal(a.Data, &r); err != nil {
			return fmt.Errorf("reload of %s: %w", a.Process, err)
		}
		r.Process = a.Process
		all = append(all, r)
		problems = append(problems, r.Problems...)
		if r.Error != "" {
			errs = append(errs, fmt.Errorf("%s: %s", r.Process, r.Error))
		}
	}
	if err := c.printReloads(all); err != nil {
		return err
	}
	switch {
	case len(problems) > 0 && c.json(): // the document says it all
		return invalid(errors.New(""))
	case len(problems) > 0:
		return invalid(problems.Sort())
	}
	return errors.Join(errs...)
}

func (c *cli) printReloads(all []reloadAnswer) error {
	if c.json() {
		return c.printJSON(all)
	}
	for _, r := range all {
		if r.Plan == nil || c.quiet {
			continue
		}
		if len(all) > 1 {
			fmt.Fprintf(c.stdout, "%s: ", r.Process)
		}
		fmt.Fprintf(c.stdout, "generation %d\n", r.Plan.Generation)
		if err := table(c.stdout, r.Plan.Rows()); err != nil {
			return err
		}
	}
	return nil
}
