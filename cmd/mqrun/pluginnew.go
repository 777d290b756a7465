package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/config"
)

func (c *cli) pluginNewCommand() *cobra.Command {
	var lang, dir string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Begin a plugin",
		Long: `Writes a plugin that works, with what it builds with, into a folder NAME. Nothing is
overwritten.`,
		Example: "  mqrun plugin new classify --lang c",
		Args:    positional(cobra.ExactArgs(1)),
		RunE:    func(_ *cobra.Command, args []string) error { return c.pluginNew(args[0], lang, dir) },
	}
	f := cmd.Flags()
	f.StringVar(&lang, "lang", "go", "its `LANGUAGE`: "+languages())
	f.StringVar(&dir, "dir", ".", "the `FOLDER` to make the plugin's folder in")
	return cmd
}

func (c *cli) pluginNew(name, lang, dir string) error {
	if err := config.ValidName(name); err != nil {
		return usagef("plugin name %q: %w", name, err)
	}
	l, err := languageNamed(lang)
	if err != nil {
		return err
	}
	s := scaffold{}
	to := filepath.Join(dir, name)
	if err := s.plugin(to, l.name, name); err != nil {
		return err
	}
	if err := s.write(); err != nil {
		return fmt.Errorf("plugin new: %w", err)
	}
	module := filepath.Join(to, name+".wasm")
	return c.printMade(to, len(s), []string{
		"mqrun plugin build " + to, "mqrun plugin call " + module + " '" + l.example + "'",
		"and in pipelines.yaml, for mqrun test and mqrun run: plugins: { " + name + ": { module: " + filepath.ToSlash(module) + " } }",
	})
}
