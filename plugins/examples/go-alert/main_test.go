package main

import (
	"testing"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

const major = `{"id":"us1000chhc","magnitude":6.4,"place":"22km NNE of Hualian, Taiwan","time":"2018-02-06T15:50:42.4Z","depth_class":"shallow"}`

func TestAlert(t *testing.T) {
	out := mqrun.Test(handle, mqrun.Input{Data: []byte(major), Subject: "quakes.major", Attempt: 2})
	if out.Verdict != mqrun.VerdictOK || len(out.Outputs) != 1 {
		t.Fatalf("got %s with %d outputs (%s); want OK with one", out.Verdict, len(out.Outputs), out.Reason)
	}
	want := `{"id":"us1000chhc","level":"major","text":"M 6.4 shallow earthquake, 22km NNE of Hualian, Taiwan, 6 Feb 2018 15:50 UTC"}`
	if got := string(out.Outputs[0].Data); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := out.Outputs[0].Header; len(got) != 1 || got[0] != (mqrun.Field{Name: "Alert-Id", Value: "us1000chhc"}) {
		t.Errorf("got header %v; want Alert-Id", got)
	}
}

func TestAlert_secondAttempt(t *testing.T) {
	tests := []struct {
		id      string
		attempt int
		want    mqrun.Verdict
	}{
		{"ak18384001", 1, mqrun.VerdictRetry}, // fnv32a is 1903057800
		{"ak18384001", 2, mqrun.VerdictOK},
		{"ak18384018", 1, mqrun.VerdictOK}, // 1953243562
	}
	for _, tt := range tests {
		out := mqrun.Test(handle, mqrun.Input{Data: []byte(`{"id":"` + tt.id + `"}`), Subject: "quakes.strong", Attempt: tt.attempt})
		if out.Verdict != tt.want {
			t.Errorf("%s, attempt %d: got %s; want %s", tt.id, tt.attempt, out.Verdict, tt.want)
		}
	}
}
