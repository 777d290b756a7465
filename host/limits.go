package host

import (
	"fmt"
	"time"
)

// Limits of one plugin. A field that is not above zero takes its default from
// DefaultLimits, so nothing but fuel is without a limit.
type Limits struct {
	Memory      int64         // bytes of linear memory, in whole pages of 64 KiB
	Timeout     time.Duration // of one call
	Init        time.Duration // of the start function, _initialize and mq_init together
	Fuel        int64         // instructions of one call, counted in steps of a few thousand; 0 = no limit
	Outputs     int           // emits of one call
	OutputBytes int64         // data, headers and subjects of one call's outputs
	LogLines    int           // of one call
	LogBytes    int64         // of one call
	ReasonBytes int
	Table       int   // elements of any one table
	Module      int64 // bytes of the file
}

// DefaultLimits are the ones of a plugin that sets none.
func DefaultLimits() Limits {
	return Limits{
		Memory:      64 << 20,
		Timeout:     5 * time.Second,
		Init:        5 * time.Second,
		Outputs:     900,
		OutputBytes: 8 << 20,
		LogLines:    64,
		LogBytes:    64 << 10,
		ReasonBytes: 1 << 10,
		Table:       65536,
		Module:      32 << 20,
	}
}

// orDefault fills what a caller left at zero.
func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	fill(&l.Memory, d.Memory)
	fill(&l.Timeout, d.Timeout)
	fill(&l.Init, d.Init)
	fill(&l.Outputs, d.Outputs)
	fill(&l.OutputBytes, d.OutputBytes)
	fill(&l.LogLines, d.LogLines)
	fill(&l.LogBytes, d.LogBytes)
	fill(&l.ReasonBytes, d.ReasonBytes)
	fill(&l.Table, d.Table)
	fill(&l.Module, d.Module)
	return l
}

func fill[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// pages of linear memory that the limit allows; WebAssembly ends at 65536.
func (l Limits) pages() uint32 { return uint32(min(max(l.Memory/pageSize, 1), maxPages)) }

const (
	pageSize = 64 << 10
	maxPages = 65536
)

// fits refuses a module that cannot start under the limits.
func (s *Settings) fits(f *Facts) error {
	l, at := s.Limits, "plugins."+s.Name+".limits."
	if f.Size > l.Module {
		return fmt.Errorf("%s has %s; the limit is %s (%smodule)", f.Name, bytesText(f.Size), bytesText(l.Module), at)
	}
	if f.MemoryMin > l.pages() {
		return fmt.Errorf("%s needs at least %d pages (%s) of memory; the limit is %s (%smemory)",
			f.Name, f.MemoryMin, bytesText(int64(f.MemoryMin)*pageSize), bytesText(l.Memory), at)
	}
	if f.TableMin > uint32(min(l.Table, maxTable)) {
		return fmt.Errorf("%s needs a table of at least %d elements; the limit is %d (%stable)", f.Name, f.TableMin, l.Table, at)
	}
	return nil
}

// maxTable is the largest table that WebAssembly engines agree on.
const maxTable = 10_000_000

// bytesText writes n in the largest unit that leaves a number of at least one.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		switch {
		case n >= u.size && n%u.size == 0:
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		case n >= u.size:
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
