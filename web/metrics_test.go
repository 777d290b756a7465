package web_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mqrun/mqrun/pipeline"
)

func TestOBS02_LabelsAreBounded(t *testing.T) {
	d := &desk{generation: 3}
	for i := range 20 {
		name := fmt.Sprint("p", i)
		if i == 0 {
			name = "orders"
		}
		d.status = append(d.status, pipeline.Status{
			Name: name, State: pipeline.StateRunning, Handled: 50_000, Acked: 40, Filtered: 10, Retried: 3, Dead: 2,
			DeadBy: map[string]int64{"trap": 1, "retry": 1}, InFlight: 5,
			Seconds: pipeline.Histogram{Count: 2, Sum: 1.5, Buckets: map[float64]uint64{0.1: 1, 5: 2}},
		})
	}
	code, body := request(t, d.handler(), "GET", "/metrics", nil)
	if code != 200 {
		t.Fatal(code, body)
	}
	for _, want := range []string{
		`mqrun_messages_total{pipeline="orders",verdict="ok"} 30`,
		`mqrun_messages_total{pipeline="orders",verdict="filtered"} 10`,
		`mqrun_messages_total{pipeline="orders",verdict="retried"} 3`,
		`mqrun_messages_total{pipeline="orders",verdict="dead"} 2`,
		`mqrun_dead_letters_total{pipeline="orders",reason="trap"} 1`,
		`mqrun_handle_seconds_bucket{pipeline="orders",le="0.1"} 1`,
		`mqrun_handle_seconds_sum{pipeline="orders"} 1.5`,
		`mqrun_in_flight{pipeline="orders"} 5`,
		`mqrun_pending{pipeline="orders"} 7`,
		`mqrun_pipeline_ready{pipeline="orders"} 1`,
		`mqrun_config_generation 3`,
		`mqrun_config_last_reload_successful 1`,
		`mqrun_config_reloads_refused_total 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	series := 0
	allowed := regexp.MustCompile(`^(pipeline|verdict|reason|le|quantile|version)="`)
	for _, line := range strings.Split(body, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		series++
		name, labels, ok := strings.Cut(line, "{")
		if !ok {
			continue
		}
		labels, _, _ = strings.Cut(labels, "}")
		for l := range strings.SplitSeq(labels, ",") {
			if !allowed.MatchString(l) {
				t.Errorf("%s has the label %s", name, l)
			}
		}
	}
	if series > 1000 {
		t.Errorf("%d series for 20 pipelines", series)
	}

	d.err = errors.New("no")
	if code, _ := request(t, d.handler(), "POST", "/metrics", nil); code == 200 {
		t.Error("POST is answered")
	}
}
