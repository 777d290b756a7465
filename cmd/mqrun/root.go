package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/config"
)

// cli is what every command has: where it reads and writes, and the global flags.
type cli struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string

	configs, set                        []string
	server, output, logLevel, logFormat string
	watch                               string
	quiet                               bool
	several                             bool // processes may answer
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "mqrun",
		Short: "A message queue that runs your code",
		Long: `mqrun moves messages from subjects through sandboxed WebAssembly plugins to
other subjects, as pipelines.yaml says, on an embedded NATS JetStream server.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              subcommands,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error { return c.checkFlags() },
	}
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	f := root.PersistentFlags()
	f.StringArrayVarP(&c.configs, "config", "c", []string{"pipelines.yaml"}, "configuration `FILE` or folder; may be repeated, a later one wins")
	f.StringArrayVar(&c.set, "set", nil, "set one value of the configuration, as in server.sync=2m; may be repeated (`a.b=c`)")
	f.StringVarP(&c.server, "server", "s", "", "NATS `URL` of the server to talk to (default: the socket in server.store_dir)")
	f.StringVarP(&c.output, "output", "o", "text", "`text` or json")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, `info`, warn or error")
	f.StringVar(&c.logFormat, "log-format", "auto", "`auto`, text or json; auto is coloured text on a terminal")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "print only what was asked for, warnings and errors")
	root.AddCommand(c.initCommand(), c.runCommand(), c.validateCommand(), c.pubCommand(), c.subCommand(), c.statusCommand(), c.dlqCommand(), c.explainCommand(), c.consumersCommand(), c.streamsCommand(), c.batchCommand(), c.reloadCommand(), c.pluginCommand(), c.testCommand(), c.versionCommand())
	return root
}

func (c *cli) checkFlags() error {
	for _, f := range []struct {
		name, value string
		allowed     []string
	}{
		{"--output", c.output, []string{"text", "json"}},
		{"--log-level", c.logLevel, []string{"debug", "info", "warn", "error"}},
		{"--log-format", c.logFormat, []string{"auto", "text", "json"}},
	} {
		if !slices.Contains(f.allowed, f.value) {
			return usagef("%s is %q; it takes %s", f.name, f.value, strings.Join(f.allowed, ", "))
		}
	}
	return nil
}

func (c *cli) json() bool { return c.output == "json" }

// load reads the configuration in files.
func (c *cli) load(files []string) (*config.Config, error) { return c.loadNamed(files, nil) }

// loadNamed tells named which files the configuration names; see
// config.LoadOptions.
func (c *cli) loadNamed(files []string, named func([]string)) (*config.Config, error) {
	cfg, err := config.Load(config.LoadOptions{Files: files, Env: c.env, Set: c.set, Named: named})
	if _, ok := errors.AsType[config.Problems](err); ok {
		return nil, invalid(err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; name the file with -c, or change to its folder", err)
	}
	return cfg, err
}
