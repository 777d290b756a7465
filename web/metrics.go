package web

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeLimit bounds what a scrape asks the server; what is not answered is
// left out.
const scrapeLimit = 2 * time.Second

// metrics reads what runs at each scrape. Labels are names from the
// configuration and fixed words: never a subject, an id or an error.
type metrics struct {
	pipelines Pipelines
	reloader  Reloader

	messages, dead, outputs, late, refused *prometheus.Desc
	seconds, inFlight, pending, ready      *prometheus.Desc
	generation, reloaded, reloadedAt       *prometheus.Desc
	rejected                               *prometheus.Desc
}

func (s *Server) metrics() http.Handler {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("mqrun_"+name, help, labels, nil)
	}
	m := &metrics{
		pipelines: s.o.Pipelines, reloader: s.o.Reloader,
		messages:   desc("messages_total", "Verdicts on messages: ok, filtered, retried, dead.", "pipeline", "verdict"),
		dead:       desc("dead_letters_total", "Dead letters by reason.", "pipeline", "reason"),
		outputs:    desc("outputs_total", "Outputs stored.", "pipeline"),
		late:       desc("late_acks_total", "Messages settled after ack_wait: somebody else may have handled them too.", "pipeline"),
		refused:    desc("publish_refused_total", "Publishes that the server refused and that are repeated.", "pipeline"),
		seconds:    desc("handle_seconds", "How long messages were in the steps.", "pipeline"),
		inFlight:   desc("in_flight", "Messages delivered and not settled.", "pipeline"),
		pending:    desc("pending", "Messages in the input streams that are not delivered yet.", "pipeline"),
		ready:      desc("pipeline_ready", "1 when the pipeline takes messages.", "pipeline"),
		generation: desc("config_generation", "Configurations applied since the start."),
		reloaded:   desc("config_last_reload_successful", "1 when the last reload was applied."),
		reloadedAt: desc("config_last_reload_timestamp_seconds", "When the last reload ended."),
		rejected:   desc("config_reloads_refused_total", "Reloads that were refused because of problems."),
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.messages, m.dead, m.outputs, m.late, m.refused, m.seconds, m.inFlight, m.pending, m.ready, m.generation, m.reloaded, m.reloadedAt, m.rejected,
	} {
		ch <- d
	}
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		send(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		send(d, prometheus.GaugeValue, v, labels...)
	}
	for _, p := range m.pipelines.Status() {
		counter(m.messages, p.Acked-p.Filtered, p.Name, "ok")
		counter(m.messages, p.Filtered, p.Name, "filtered")
		counter(m.messages, p.Retried, p.Name, "retried")
		counter(m.messages, p.Dead, p.Name, "dead")
		for reason, n := range p.DeadBy {
			counter(m.dead, n, p.Name, reason)
		}
		counter(m.outputs, p.Outputs, p.Name)
		counter(m.late, p.LateAcks, p.Name)
		counter(m.refused, p.Refused, p.Name)
		ch <- prometheus.MustNewConstHistogram(m.seconds, p.Seconds.Count, p.Seconds.Sum, p.Seconds.Buckets, p.Name)
		gauge(m.inFlight, float64(p.InFlight), p.Name)
		gauge(m.ready, truth(p.Ready()), p.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	for name, n := range m.pipelines.Pending(ctx) {
		gauge(m.pending, float64(n), name)
	}
	last := m.reloader.Last()
	gauge(m.generation, float64(m.pipelines.Generation()))
	gauge(m.reloaded, truth(len(last.Problems) == 0))
	counter(m.rejected, int64(last.Refused)) //nolint:gosec // nobody reloads so often
	if !last.Time.IsZero() {
		gauge(m.reloadedAt, float64(last.Time.Unix()))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
