package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func (c *cli) printCalled(r called) error {
	if c.json() {
		return c.printJSON(r)
	}
	line := r.Verdict
	if r.Retry != "" {
		line += " after " + r.Retry
	}
	if r.Reason != "" {
		line += ": " + r.Reason
	}
	fmt.Fprintln(c.stdout, printable(line))
	for i, o := range r.Outputs {
		to := o.Subject
		if to == "" {
			to = "to, or the next step"
		}
		fmt.Fprintf(c.stdout, "\noutput %d for %s, %s\n", i, printable(to), size(int64(len(o.Data))))
		for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
			for _, v := range o.Headers[name] {
				fmt.Fprintf(c.stdout, "  %s: %s\n", printable(name), printable(v))
			}
		}
		fmt.Fprint(c.stdout, payload(o.Data))
	}
	if len(r.Log) > 0 {
		fmt.Fprintln(c.stdout, "\nlog of the guest")
		for _, l := range r.Log {
			fmt.Fprintf(c.stdout, "  %s\n", printable(l))
		}
	}
	if c.quiet {
		return nil
	}
	took := r.First.String()
	if r.Calls > 1 {
		took = fmt.Sprintf("%s the first, %s the median of %d calls", r.First, r.Median, r.Calls)
	}
	fmt.Fprintf(c.stdout, "\n%s, %s of memory", took, size(r.Memory))
	if r.Fuel > 0 {
		fmt.Fprintf(c.stdout, ", fuel %d", r.Fuel)
	}
	fmt.Fprintln(c.stdout)
	return nil
}

// moduleName is what a module is called that has no name in a configuration.
func moduleName(file string) string {
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
