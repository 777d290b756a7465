// Command go-enrich adds to an earthquake what can be worked out from it: the
// region, how deep it was and the energy that it set free. What it does not
// know it passes on untouched.
//
// Build: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o enrich.wasm ./go-enrich
//
// # Caveats
//
// The energy is the Gutenberg-Richter estimate, log10 E = 4.8 + 1.5 M, whatever
// scale the magnitude was measured on.
package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

// known is what this plugin reads; the rest of the report stays raw.
type known struct {
	ID        string  `json:"id"`
	Magnitude float64 `json:"magnitude"`
	Place     string  `json:"place"`
	Depth     float64 `json:"depth_km"`
}

// added is what it adds.
type added struct {
	Region     string  `json:"region"`
	DepthClass string  `json:"depth_class"`
	Energy     float64 `json:"energy_joules"`
}

func init() { mqrun.Handle(handle) }

func main() { mqrun.Main() }

func handle(m *mqrun.Message) error {
	var k known
	if err := json.Unmarshal(m.Data(), &k); err != nil {
		return mqrun.Reject("enrich: " + err.Error())
	}
	if k.ID == "" {
		return mqrun.Reject("enrich: no id")
	}
	more, err := json.Marshal(added{Region: region(k.Place), DepthClass: depthClass(k.Depth), Energy: energy(k.Magnitude)})
	if err != nil {
		return err
	}
	// Both are objects and the report has an id, so the second joins the first
	// where its brace was.
	out := bytes.TrimSpace(m.Data())
	out = append(out[:len(out)-1], ',')
	return m.Emit(append(out, more[1:]...))
}

// region is what stands after the last comma: "4km W of Castaic, CA" is in CA.
func region(place string) string {
	if at := strings.LastIndex(place, ", "); at >= 0 {
		return place[at+2:]
	}
	return place
}

// depthClass uses the USGS limits of 70 and 300 km.
func depthClass(km float64) string {
	switch {
	case km < 70:
		return "shallow"
	case km < 300:
		return "intermediate"
	}
	return "deep"
}

// energy is kept to three digits; more would pretend to know.
func energy(magnitude float64) float64 {
	joules := math.Pow(10, 4.8+1.5*magnitude)
	unit := math.Pow(10, math.Floor(math.Log10(joules))-2)
	return math.Round(joules/unit) * unit
}
