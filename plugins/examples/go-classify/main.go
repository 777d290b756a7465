// Command go-classify sends an earthquake to the subject of its strength and
// drops what people made: explosions and quarry blasts.
//
// Build: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o classify.wasm ./go-classify
//
// Configuration: strong_from and major_from, the magnitudes from which a quake
// goes to quakes.strong and quakes.major; all others go to quakes.minor.
//
// # Caveats
//
// The plugin needs allow.publish for its three subjects.
package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

// limits is the plugin's configuration, read once per instance.
type limits struct{ strong, major float64 }

var from limits

func init() {
	mqrun.Init(func() (err error) {
		from, err = readLimits()
		return err
	})
	mqrun.Handle(handle)
}

func main() { mqrun.Main() }

func handle(m *mqrun.Message) error {
	var quake struct {
		Magnitude *float64 `json:"magnitude"`
		Type      string   `json:"type"`
	}
	if err := json.Unmarshal(m.Data(), &quake); err != nil {
		return mqrun.Reject("classify: " + err.Error())
	}
	switch {
	case quake.Magnitude == nil:
		return mqrun.Reject("classify: no magnitude")
	case quake.Type == "explosion", quake.Type == "quarry blast":
		return mqrun.Drop
	}
	return m.EmitTo(from.subject(*quake.Magnitude), m.Data())
}

func (l limits) subject(magnitude float64) string {
	switch {
	case magnitude >= l.major:
		return "quakes.major"
	case magnitude >= l.strong:
		return "quakes.strong"
	}
	return "quakes.minor"
}

func readLimits() (limits, error) {
	strong, err := number("strong_from")
	if err != nil {
		return limits{}, err
	}
	major, err := number("major_from")
	if err != nil {
		return limits{}, err
	}
	if major < strong {
		return limits{}, fmt.Errorf("config: major_from %v is below strong_from %v", major, strong)
	}
	return limits{strong, major}, nil
}

func number(key string) (float64, error) {
	text, ok := mqrun.Config(key)
	if !ok {
		return 0, fmt.Errorf("config: %s is missing; set it to a magnitude", key)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("config: %s is %q, want a number", key, text)
	}
	return n, nil
}
