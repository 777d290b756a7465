//go:build !rivals

package main

// rivals need modules that nothing else here does: `make bench` has them.
func rivals() []engine { return nil }
