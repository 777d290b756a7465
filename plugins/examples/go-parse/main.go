// Command go-parse checks one USGS earthquake report (a GeoJSON feature) and
// emits what the rest of the pipelines need of it as compact JSON. A report
// that lacks something is rejected with the reason.
//
// Build: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o parse.wasm ./go-parse
// Try:   go run ./go-parse <data/damaged.ndjson
//
// # Caveats
//
// A depth below zero is real (above sea level), and so is a negative magnitude.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

// feature is a report as it arrives. Pointers tell what is absent or null from zero.
type feature struct {
	Type       string `json:"type"`
	ID         string `json:"id"`
	Properties struct {
		Magnitude *float64 `json:"mag"`
		Place     string   `json:"place"`
		Time      *int64   `json:"time"` // unix milliseconds
		Type      string   `json:"type"`
	} `json:"properties"`
	Geometry struct {
		Coordinates []float64 `json:"coordinates"` // longitude, latitude, depth in km
	} `json:"geometry"`
}

// quake is a report as it leaves.
type quake struct {
	ID        string    `json:"id"`
	Magnitude float64   `json:"magnitude"`
	Place     string    `json:"place"`
	Time      time.Time `json:"time"`
	Type      string    `json:"type"`
	Longitude float64   `json:"longitude"`
	Latitude  float64   `json:"latitude"`
	Depth     float64   `json:"depth_km"`
}

func init() { mqrun.Handle(handle) }

func main() { mqrun.Main() }

func handle(m *mqrun.Message) error {
	q, err := parse(m.Data())
	if err != nil {
		return mqrun.Reject(err.Error())
	}
	out, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return m.Emit(out)
}

func parse(data []byte) (quake, error) {
	var f feature
	if err := json.Unmarshal(data, &f); err != nil {
		return quake{}, explain(err)
	}
	p, at := f.Properties, f.Geometry.Coordinates
	switch {
	case f.Type != "Feature":
		return quake{}, fmt.Errorf("type is %q, want Feature", f.Type)
	case f.ID == "":
		return quake{}, errors.New("no id")
	case p.Magnitude == nil:
		return quake{}, errors.New("no magnitude (properties.mag)")
	case p.Time == nil:
		return quake{}, errors.New("no time (properties.time)")
	case len(at) != 3:
		return quake{}, fmt.Errorf("%d coordinates, want longitude, latitude and depth", len(at))
	case at[0] < -180 || at[0] > 180 || at[1] < -90 || at[1] > 90:
		return quake{}, fmt.Errorf("longitude %v, latitude %v is no place on Earth", at[0], at[1])
	}
	return quake{
		ID: f.ID, Magnitude: *p.Magnitude, Place: p.Place, Time: time.UnixMilli(*p.Time).UTC(), Type: p.Type,
		Longitude: at[0], Latitude: at[1], Depth: at[2],
	}, nil
}

// explain turns the decoder's error into words for whoever sent the report.
func explain(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("%s is a %s, want a %s", kind.Field, kind.Value, jsonKind(kind.Type))
	case errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input":
		return fmt.Errorf("truncated: the JSON ends after byte %d", syntax.Offset)
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON: %w at byte %d", err, syntax.Offset)
	}
	return err
}

func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Float64, reflect.Int64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Struct:
		return "object"
	default:
		return t.Kind().String()
	}
}
