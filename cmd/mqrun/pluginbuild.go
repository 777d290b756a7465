package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/host"
)

// built is what `plugin build` made.
type built struct {
	Module  string   `json:"module"`
	Command []string `json:"command"`
	Env     []string `json:"env"`
	Size    int64    `json:"size"`
	SHA256  string   `json:"sha256"`
}

func (c *cli) pluginBuildCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a plugin with its language's compiler",
		Long: `Finds the language of the source in DIR (default: here), prints the command that
builds it and runs it there. The module is DIR/NAME.wasm, where NAME is the folder's
name. It is checked before it takes the place of an older one.`,
		Example: "  mqrun plugin build plugins/hello",
		Args:    positional(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return c.pluginBuild(cmd.Context(), dir, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the module to write (`FILE`)")
	return cmd
}

func (c *cli) pluginBuild(ctx context.Context, dir, out string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	l, files, err := languageOf(dir)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(l.line[0]); err != nil {
		return fmt.Errorf("%s is not there: %s", l.line[0], l.install)
	}
	if out == "" {
		out = filepath.Join(dir, filepath.Base(dir)+".wasm")
	}
	// Beside the module: a running mqrun must never see half of one.
	temp, err := os.MkdirTemp(filepath.Dir(out), ".build-")
	if err != nil {
		return fmt.Errorf("build into %s: %w", filepath.Dir(out), err)
	}
	defer os.RemoveAll(temp)
	module := filepath.Join(temp, filepath.Base(out))
	if module, err = filepath.Abs(module); err != nil {
		return err
	}
	if !c.quiet {
		shown := strings.Join(append(append([]string{}, l.env...), l.command(filepath.Base(out), files)...), " ")
		fmt.Fprintln(c.stderr, shown)
	}
	line := l.command(module, files)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // the commands are ours
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.Stdout = dir, append(os.Environ(), l.env...), c.stderr, c.stderr
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("%s failed (exit code %d); %s is as it was", line[0], exit.ExitCode(), out)
		}
		return err
	}
	wasm, err := os.ReadFile(module)
	if err != nil {
		return fmt.Errorf("%s made no module: %w", line[0], err)
	}
	f, err := host.Inspect(filepath.Base(out), wasm)
	if err != nil {
		return fmt.Errorf("what was built cannot run: %w", err)
	}
	if err := os.Rename(module, out); err != nil {
		return err
	}
	return c.printBuilt(built{out, l.command(filepath.Base(out), files), append([]string{}, l.env...), f.Size, f.SHA256})
}

func (c *cli) printBuilt(b built) error {
	if c.json() {
		return c.printJSON(b)
	}
	if !c.quiet {
		name := b.Module
		if wd, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(wd, name); err == nil && !strings.HasPrefix(rel, "..") {
				name = rel
			}
		}
		fmt.Fprintf(c.stdout, "%s  %s  sha256 %.12s\n", name, size(b.Size), b.SHA256)
	}
	return nil
}
