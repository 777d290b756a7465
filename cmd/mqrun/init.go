package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

func (c *cli) initCommand() *cobra.Command {
	var lang string
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Begin a project: a configuration and a plugin",
		Long: `Writes pipelines.yaml, a plugin in plugins/hello and a .gitignore into DIR (default:
here), and prints the next commands. Nothing is overwritten.`,
		Example: "  mqrun init greetings",
		Args:    positional(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return c.initProject(dir, lang)
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "go", "the plugin's `LANGUAGE`: "+languages())
	return cmd
}

func (c *cli) initProject(dir, lang string) error {
	const name = "hello"
	l, err := languageNamed(lang)
	if err != nil {
		return err
	}
	s := scaffold{}
	if err := s.expand("template/init", dir, name); err != nil {
		return err
	}
	plugin := filepath.Join("plugins", name)
	if err := s.plugin(filepath.Join(dir, plugin), l.name, name); err != nil {
		return err
	}
	if err := s.write(); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	next := []string{"mqrun plugin build " + plugin, "mqrun test", "mqrun run", "mqrun pub ingest.hello '" + l.example + "'   # in a second terminal"}
	if dir != "." {
		next = append([]string{"cd " + dir}, next...)
	}
	return c.printMade(filepath.Join(dir, "pipelines.yaml")+" and "+filepath.Join(dir, plugin), len(s), next)
}

type made struct {
	Made  string   `json:"made"`
	Files int      `json:"files"`
	Next  []string `json:"next"`
}

func (c *cli) printMade(what string, files int, next []string) error {
	if c.json() {
		return c.printJSON(made{what, files, next})
	}
	if c.quiet {
		return nil
	}
	fmt.Fprintf(c.stdout, "made %s (%s)\n\nnext:\n", what, plural(files, "file"))
	for _, line := range next {
		fmt.Fprintln(c.stdout, "  "+line)
	}
	return nil
}
