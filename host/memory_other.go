//go:build !unix

package host

import "github.com/tetratelabs/wazero/experimental"

// mapMemory has no mapping to give; the heap serves.
func mapMemory(uint64) experimental.LinearMemory { return nil }
