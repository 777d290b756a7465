package main

import (
	"bufio"
	"os"
	"strings"
	"testing"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

const good = `{"type":"Feature","properties":{"mag":2,"place":"4km W of Castaic, CA","time":1517966773840,"type":"earthquake"},"geometry":{"type":"Point","coordinates":[-118.6671667,34.4945,26.49]},"id":"ci37868143"}`

func TestParse(t *testing.T) {
	out := mqrun.Test(handle, mqrun.Input{Data: []byte(good)})
	if out.Verdict != mqrun.VerdictOK || len(out.Outputs) != 1 {
		t.Fatalf("got %s with %d outputs (%s); want OK with one", out.Verdict, len(out.Outputs), out.Reason)
	}
	want := `{"id":"ci37868143","magnitude":2,"place":"4km W of Castaic, CA","time":"2018-02-07T01:26:13.84Z","type":"earthquake","longitude":-118.6671667,"latitude":34.4945,"depth_km":26.49}`
	if got := string(out.Outputs[0].Data); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestParse_rejects(t *testing.T) {
	tests := []struct{ name, old, new, reason string }{
		{"magnitude null", `"mag":2`, `"mag":null`, "no magnitude (properties.mag)"},
		{"magnitude as text", `"mag":2`, `"mag":"2"`, "properties.mag is a string, want a number"},
		{"no id", `,"id":"ci37868143"`, ``, "no id"},
		{"no time", `"time":1517966773840,`, ``, "no time (properties.time)"},
		{"not a feature", `"Feature"`, `"FeatureCollection"`, `type is "FeatureCollection", want Feature`},
		{"no depth", `,26.49`, ``, "2 coordinates, want longitude, latitude and depth"},
		{"latitude", `34.4945`, `94.4945`, "longitude -118.6671667, latitude 94.4945 is no place on Earth"},
		{"more than one", `"id":"ci37868143"}`, `"id":"ci37868143"}}`, "not JSON: invalid character '}' after top-level value at byte 203"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := strings.Replace(good, tt.old, tt.new, 1)
			if data == good {
				t.Fatalf("%s is not in the message", tt.old)
			}
			out := mqrun.Test(handle, mqrun.Input{Data: []byte(data)})
			if out.Verdict != mqrun.VerdictReject || out.Reason != tt.reason {
				t.Errorf("got %s %q; want REJECT %q", out.Verdict, out.Reason, tt.reason)
			}
		})
	}
}

// TestParse_damaged holds damaged.ndjson to what its README says: five of each.
func TestParse_damaged(t *testing.T) {
	f, err := os.Open("../data/damaged.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		out := mqrun.Test(handle, mqrun.Input{Data: lines.Bytes()})
		if out.Verdict != mqrun.VerdictReject {
			t.Errorf("got %s; want REJECT of %s", out.Verdict, lines.Text())
		}
		kind, _, _ := strings.Cut(out.Reason, ":")
		got[kind]++
	}
	for _, kind := range []string{"truncated", "not JSON", "no magnitude (properties.mag)", "properties.mag is a string, want a number", "no id"} {
		if got[kind] != 5 {
			t.Errorf("got %d rejected as %q; want 5", got[kind], kind)
		}
	}
}
