package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/host"
)

type versions struct {
	Mqrun    string `json:"mqrun"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Nats     string `json:"nats_server"`
	Wazero   string `json:"wazero"`
	ABI      string `json:"abi"`
	Platform string `json:"platform"`
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of mqrun and of what is built in",
		Args:  positional(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := builtIn()
			if c.json() {
				return c.printJSON(v)
			}
			if v.Revision != "" {
				v.Mqrun += " (" + v.Revision + ")"
			}
			return table(c.stdout, [][]string{
				{"mqrun", v.Mqrun}, {"go", v.Go}, {"nats-server", v.Nats}, {"wazero", v.Wazero}, {"abi", v.ABI}, {"platform", v.Platform},
			})
		},
	}
}

func builtIn() versions {
	v := versions{
		Mqrun: "unknown", Go: runtime.Version(), Nats: "unknown", Wazero: "unknown",
		ABI: host.ABIv1, Platform: fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Mqrun = info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	for _, d := range info.Deps {
		switch d.Path {
		case "github.com/nats-io/nats-server/v2":
			v.Nats = d.Version
		case "github.com/tetratelabs/wazero":
			v.Wazero = d.Version
		}
	}
	return v
}
