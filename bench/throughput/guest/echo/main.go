// Package main is a Go guest that emits its input.
//
// # Caveats
//
// It is for measuring alone: it checks nothing.
package main

import mqrun "github.com/mqrun/mqrun/pluginsdk/go"

func init() {
	mqrun.Handle(func(m *mqrun.Message) error { return m.Emit(m.Data()) })
}

func main() { mqrun.Main() }
