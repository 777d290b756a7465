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
}

func (c *cli) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "validate [FILE...]",
		Aliases: []string{"lint"},
		Short:   "Check the configuration and its plugins",
		Long: `Checks what run would check, and starts nothing: the files, the names, and every
plugin, which is compiled, linked and instantiated once. All problems are
printed at once, as file:line:col. Several files are one configuration.`,
		Args: positional(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			files := c.configs
			if len(args) > 0 {
				files = args
			}
			return c.validate(cmd.Context(), files)
		},
	}
}

func (c *cli) validate(ctx context.Context, files []string) error {
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
	v.OK = len(v.Problems) == 0
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
	if !v.OK {
		return invalid(v.Problems)
	}
	if !c.quiet {
		fmt.Fprintf(c.stdout, "ok: %s, %s\n", plural(len(cfg.Plugins), "plugin"), plural(len(cfg.Pipelines), "pipeline"))
	}
	return nil
}
