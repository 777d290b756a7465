// Package main is a Go guest that decodes its input, changes a field, and
// emits it encoded again.
//
// # Caveats
//
// It is for measuring alone: it checks nothing.
package main

import (
	"encoding/json"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

type reading struct {
	ID    int     `json:"id"`
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Text  string  `json:"text"`
}

func init() {
	mqrun.Handle(func(m *mqrun.Message) error {
		var r reading
		if err := json.Unmarshal(m.Data(), &r); err != nil {
			return mqrun.Reject(err.Error())
		}
		r.Value++
		out, err := json.Marshal(r)
		if err != nil {
			return err
		}
		return m.Emit(out)
	})
}

func main() { mqrun.Main() }
