package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func (c *cli) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Begin, build, look into and try plugins",
		Args:  subcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.pluginNewCommand(), c.pluginBuildCommand(), c.pluginInspectCommand(), c.pluginCallCommand())
	return cmd
}

// userCache is where commands that run plugins without a store keep what they
// compiled; "" when the system offers no place.
func userCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir = filepath.Join(dir, "mqrun")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	return dir
}

// readModule reads a module's file.
func readModule(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; give the path of a .wasm file", err)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file; give the path of a .wasm file", file)
	}
	return os.ReadFile(file)
}
