package main

import (
	"testing"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

var config = map[string]string{"strong_from": "2.5", "major_from": "4.5"}

func TestClassify(t *testing.T) {
	tests := []struct{ name, data, subject string }{
		{"minor", `{"magnitude":2.49,"type":"earthquake"}`, "quakes.minor"},
		{"negative", `{"magnitude":-0.8,"type":"earthquake"}`, "quakes.minor"},
		{"strong from", `{"magnitude":2.5,"type":"earthquake"}`, "quakes.strong"},
		{"below major", `{"magnitude":4.49,"type":"earthquake"}`, "quakes.strong"},
		{"major from", `{"magnitude":4.5,"type":"earthquake"}`, "quakes.major"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := mqrun.Test(handle, mqrun.Input{
				Data: []byte(tt.data), Config: config, NoTo: true,
				Publish: []string{"quakes.minor", "quakes.strong", "quakes.major"},
			})
			if out.Verdict != mqrun.VerdictOK || len(out.Outputs) != 1 {
				t.Fatalf("got %s with %d outputs (%s); want OK with one", out.Verdict, len(out.Outputs), out.Reason)
			}
			if got := out.Outputs[0]; got.Subject != tt.subject || string(got.Data) != tt.data {
				t.Errorf("got %s %s; want %s %s", got.Subject, got.Data, tt.subject, tt.data)
			}
		})
	}
}

func TestClassify_dropsWhatPeopleMade(t *testing.T) {
	for _, kind := range []string{"explosion", "quarry blast"} {
		out := mqrun.Test(handle, mqrun.Input{Data: []byte(`{"magnitude":2,"type":"` + kind + `"}`), Config: config})
		if out.Verdict != mqrun.VerdictDrop {
			t.Errorf("%s: got %s; want DROP", kind, out.Verdict)
		}
	}
}

func TestClassify_config(t *testing.T) {
	tests := []struct {
		config map[string]string
		reason string
	}{
		{nil, "config: strong_from is missing; set it to a magnitude"},
		{map[string]string{"strong_from": "big"}, `config: strong_from is "big", want a number`},
		{map[string]string{"strong_from": "5", "major_from": "4"}, "config: major_from 4 is below strong_from 5"},
	}
	for _, tt := range tests {
		out := mqrun.Test(handle, mqrun.Input{Data: []byte(`{"magnitude":2}`), Config: tt.config})
		if out.Verdict == mqrun.VerdictOK || out.Reason != tt.reason {
			t.Errorf("got %s %q; want %q", out.Verdict, out.Reason, tt.reason)
		}
	}
}
