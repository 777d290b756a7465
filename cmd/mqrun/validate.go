package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/pipeline"
)

type verdict struct {
	OK       bool            `json:"ok"`
	Files    []string        `json:"files"`
	Problems config.Problems `json:"problems"`
	Warnings config.Problems `json:"warnings"`
	Online   *online         `json:"online,omitempty"`
}

func (c *cli) validateCommand() *cobra.Command {
	var onlineToo bool
	cmd := &cobra.Command{
		Use:     "validate [FILE...]",
		Aliases: []string{"lint"},
		Short:   "Check the configuration and its plugins",
		Long: `Checks what run would check, and starts nothing: the files, the names, and every
plugin, which is compiled, linked and instantiated once. All problems are
printed at once, as file:line:col. Several files are one configuration.

With --online it also asks the server (the running mqrun, nats.url, or -s) what
streams, consumers and buckets it has, and prints what run would make, add and
leave as it is there. It changes nothing. It ends with 3 when run could not start.`,
		Args: positional(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			files := c.configs
			if len(args) > 0 {
				files = args
			}
			c.configs = files
			return c.validate(cmd.Context(), files, onlineToo)
		},
	}
	cmd.Flags().BoolVar(&onlineToo, "online", false, "compare with what the server has, and print a plan")
	return cmd
}

func (c *cli) validate(ctx context.Context, files []string, onlineToo bool) error {
	v := verdict{Files: files, Problems: config.Problems{}, Warnings: config.Problems{}}
	cfg, err := c.load(files)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		v.Problems = problems
	} else if err != nil {
		return err
	}
	if cfg != nil {
		v.Warnings = append(v.Warnings, cfg.Warnings...)
		problems, err := checkPlugins(ctx, cfg)
		if err != nil {
			return err
		}
		v.Problems = append(v.Problems, problems...)
	}
	if onlineToo && len(v.Problems) == 0 {
		var problems config.Problems
		if v.Online, problems, err = c.compare(ctx, cfg); err != nil {
			return err
		}
		v.Problems = append(v.Problems, problems...)
	}
	v.OK = len(v.Problems) == 0 && !v.Online.refuses()
	return c.printVerdict(v, cfg)
}

func checkPlugins(ctx context.Context, cfg *config.Config) (config.Problems, error) {
	rt, err := host.New(ctx, host.Options{CacheDir: userCache()})
	if err != nil {
		return nil, err
	}
	problems := pipeline.Check(ctx, rt, cfg)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return problems.Sort(), rt.Close(ctx)
}

func (c *cli) printVerdict(v verdict, cfg *config.Config) error {
	if c.json() {
		if err := c.printJSON(v); err != nil {
			return err
		}
		if !v.OK { // the document says it all
			return invalid(errors.New(""))
		}
		return nil
	}
	for _, w := range v.Warnings {
		fmt.Fprintln(c.stderr, "warning: "+w.String())
	}
	if v.Online != nil {
		if err := c.printOnline(v.Online); err != nil {
			return err
		}
	}
	if !v.OK && len(v.Problems) == 0 {
		return invalid(errors.New("run would not start with this server"))
	}
	if !v.OK {
		return invalid(v.Problems)
	}
	if !c.quiet {
		fmt.Fprintf(c.stdout, "ok: %s, %s\n", plural(len(cfg.Plugins), "plugin"), plural(len(cfg.Pipelines), "pipeline"))
	}
	return nil
}
