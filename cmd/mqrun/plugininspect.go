package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/host"
)

// inspected is what `plugin inspect` says of a module.
type inspected struct {
	File      string           `json:"file"`
	OK        bool             `json:"ok"` // it can be loaded, with what it needs allowed
	Error     string           `json:"error,omitempty"`
	ABI       string           `json:"abi,omitempty"`
	Size      int64            `json:"size"`
	SHA256    string           `json:"sha256"`
	Memory    inspectedMemory  `json:"memory"`
	Producers []string         `json:"producers"`
	Exports   []inspectedThing `json:"exports"`
	Imports   []inspectedThing `json:"imports"`
	Needs     []string         `json:"needs"` // what the configuration has to allow
}

type inspectedMemory struct {
	Min int64 `json:"min"` // bytes
	Max int64 `json:"max"`
}

type inspectedThing struct {
	Module    string `json:"module,omitempty"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Signature string `json:"signature,omitempty"`
	Unknown   bool   `json:"unknown,omitempty"` // this mqrun does not offer it
}

func (c *cli) pluginInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE...",
		Short: "Show what a module is, without running it",
		Long: `Shows what the bytes of a module say: its ABI, who made it, its memory, exports
and imports, and what the configuration has to allow. Exits with 1 when one of
them cannot run here, and says why.`,
		Example: "  mqrun plugin inspect plugins/bin/parse.wasm",
		Args:    positional(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			all := []inspected{}
			bad := 0
			for _, file := range args {
				wasm, err := readModule(file)
				if err != nil {
					return err
				}
				i := inspect(file, wasm)
				if !i.OK {
					bad++
				}
				all = append(all, i)
			}
			if err := c.printInspected(all); err != nil {
				return err
			}
			if bad > 0 {
				return &exitError{exitFailed, fmt.Errorf("%d of %s cannot run here", bad, plural(len(all), "module"))}
			}
			return nil
		},
	}
}

func inspect(file string, wasm []byte) inspected {
	f, err := host.Inspect(file, wasm)
	i := inspected{File: file, OK: err == nil, Size: int64(len(wasm)), Producers: []string{}, Exports: []inspectedThing{}, Imports: []inspectedThing{}, Needs: []string{}}
	if err != nil {
		i.Error = err.Error()
	}
	if f == nil {
		return i
	}
	const page = 64 << 10
	i.ABI, i.SHA256 = f.ABI, f.SHA256
	i.Memory = inspectedMemory{int64(f.MemoryMin) * page, int64(f.MemoryMax) * page}
	i.Producers = append(i.Producers, f.Producers...)
	for _, e := range f.Exports {
		i.Exports = append(i.Exports, inspectedThing{Name: e.Name, Kind: e.Kind, Signature: e.Signature})
	}
	for _, m := range f.Imports {
		i.Imports = append(i.Imports, inspectedThing{m.Module, m.Name, m.Kind, m.Signature, !host.Offers(m)})
		if m.Module == host.ABIv1 && strings.HasPrefix(m.Name, "kv_") && !slices.Contains(i.Needs, "allow.kv") {
			i.Needs = append(i.Needs, "allow.kv")
		}
	}
	return i
}

func (c *cli) printInspected(all []inspected) error {
	if c.json() {
		return c.printJSON(all)
	}
	for n, i := range all {
		if n > 0 {
			fmt.Fprintln(c.stdout)
		}
		rows := [][]string{{printable(i.File)}}
		row := func(name, value string) {
			if value != "" {
				rows = append(rows, []string{"  " + name, printable(value)})
			}
		}
		row("problem", i.Error)
		row("abi", i.ABI)
		row("size", size(i.Size))
		row("sha256", i.SHA256)
		if i.Memory.Min > 0 {
			row("memory", fmt.Sprintf("%s, at most %s", size(i.Memory.Min), size(i.Memory.Max)))
		}
		row("made by", strings.Join(i.Producers, ", "))
		row("exports", strings.Join(things(i.Exports), ", "))
		from := map[string][]inspectedThing{}
		for _, m := range i.Imports {
			from[m.Module] = append(from[m.Module], m)
		}
		for _, module := range slices.Sorted(maps.Keys(from)) {
			row("imports", module+": "+strings.Join(things(from[module]), ", "))
		}
		row("needs", strings.Join(i.Needs, ", "))
		if err := table(c.stdout, rows); err != nil {
			return err
		}
	}
	return nil
}

func things(all []inspectedThing) []string {
	var names []string
	for _, t := range all {
		name := t.Name
		switch {
		case t.Unknown:
			name += " (unknown)"
		case t.Module == "" && t.Kind != "func":
			name += " (" + t.Kind + ")"
		}
		names = append(names, name)
	}
	return names
}
