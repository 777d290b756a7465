package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/config"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInvalid     = 3
	exitTest        = 4
	exitInterrupted = 130
)

var errInterrupted = errors.New("interrupted")

// exitError is an error with the exit code that it asks for.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func invalid(err error) error { return &exitError{exitInvalid, err} }

// positional turns what cobra says about arguments into a usage error.
func positional(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &exitError{exitUsage, err}
		}
		return nil
	}
}

// subcommands is the argument check of a command that only holds others.
func subcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %q?)", near[0])
	}
	return usagef("unknown command %q%s", args[0], hint)
}

// execute runs the command line and prints its error: this is the one place
// that does.
func (c *cli) execute(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	code := exitFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	} else if ctx.Err() != nil {
		code, err = exitInterrupted, context.Cause(ctx)
	}
	text := err.Error()
	if ps, ok := errors.AsType[config.Problems](err); ok {
		fmt.Fprintln(c.stderr, ps.Error())
		text = plural(len(ps), "problem")
	}
	if text != "" {
		fmt.Fprintln(c.stderr, "mqrun: "+strings.TrimSpace(text))
	}
	if code == exitUsage {
		fmt.Fprintf(c.stderr, "Run '%s --help' to see what it takes.\n", cmd.CommandPath())
	}
	return code
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
