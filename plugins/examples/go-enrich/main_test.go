package main

import (
	"encoding/json"
	"testing"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

func TestEnrich(t *testing.T) {
	tests := []struct {
		name, data, region, depth string
		energy                    float64
	}{
		{"state", `{"id":"a","magnitude":2,"place":"4km W of Castaic, CA","depth_km":26.49}`, "CA", "shallow", 63100000},
		{"no comma", `{"id":"a","magnitude":6.4,"place":"Southern Mid-Atlantic Ridge","depth_km":70}`, "Southern Mid-Atlantic Ridge", "intermediate", 251000000000000},
		{"deep, negative, padded", `{"id":"a","magnitude":-0.8,"place":"","depth_km":573.76} ` + "\n", "", "deep", 3980},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := mqrun.Test(handle, mqrun.Input{Data: []byte(tt.data)})
			if out.Verdict != mqrun.VerdictOK || len(out.Outputs) != 1 {
				t.Fatalf("got %s with %d outputs (%s); want OK with one", out.Verdict, len(out.Outputs), out.Reason)
			}
			var got struct {
				known
				added
			}
			if err := json.Unmarshal(out.Outputs[0].Data, &got); err != nil {
				t.Fatalf("%v: %s", err, out.Outputs[0].Data)
			}
			if got.ID != "a" || got.Region != tt.region || got.DepthClass != tt.depth || got.Energy != tt.energy {
				t.Errorf("got %+v; want %+v", got, tt)
			}
		})
	}
}

func TestEnrich_rejects(t *testing.T) {
	for _, data := range []string{``, `{}`, `{"id":1}`} {
		if out := mqrun.Test(handle, mqrun.Input{Data: []byte(data)}); out.Verdict != mqrun.VerdictReject {
			t.Errorf("%q: got %s; want REJECT", data, out.Verdict)
		}
	}
}
