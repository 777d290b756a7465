package pipeline

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
)

const onlineYAML = `
server: { max_bytes: 1GiB }
streams: { SEEN: { subjects: "seen.>", duplicate_window: 1m } }
plugins: { a: { module: a.wasm, allow: { publish: [seen.x], kv: [notes] } } }
pipelines:
  p: { from: [ingest.x, orders.eu], steps: a, to: out.p, order: strict }
`

// compare lists what would be changed, and holds that nothing was.
func (r *rig) compare(yaml string) []string {
	r.t.Helper()
	before := r.streams()
	changes, problems, err := Compare(r.ctx(), r.mq.NatsConn(), r.load(yaml))
	if err != nil || problems != nil {
		r.t.Fatal(problems, err)
	}
	if diff := cmp.Diff(before, r.streams()); diff != "" {
		r.t.Errorf("it has changed (-before +after):\n%s", diff)
	}
	got := []string{}
	for _, c := range changes {
		got = append(got, c.Kind+" "+c.String())
	}
	return got
}

func (r *rig) streams() map[string][]string {
	r.t.Helper()
	all := map[string][]string{}
	list := r.js().ListStreams(r.ctx())
	for i := range list.Info() {
		all[i.Config.Name] = i.Config.Subjects
	}
	if err := list.Err(); err != nil {
		r.t.Fatal(err)
	}
	return all
}

func TestCompareTellsWhatRunWouldDo(t *testing.T) {
	r := &rig{t: t, sync: time.Minute, dir: t.TempDir(), native: map[string]native{"a": echo}, log: &syncWriter{}}
	r.start()
	t.Cleanup(r.stop)
	if _, err := r.js().CreateStream(r.ctx(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	want := func(yaml string, lines ...string) {
		t.Helper()
		if diff := cmp.Diff(lines, r.compare(yaml)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	// The rig has made mqrun's own buckets and audit stream.
	want(onlineYAML,
		"make bucket MQRUN_LEASES: is made with 1 replicas",
		"make bucket notes: is made with 1 replicas",
		"make consumer mqrun-p on stream MQRUN: is made for ingest.x, mqrun.MQRUN.redo.p, and begins with the oldest message",
		"make consumer mqrun-p on stream ORDERS: is made for orders.eu, and begins with the oldest message",
		"make stream MQRUN: is made for ingest.>, mqrun.MQRUN.>, with 1 replicas and at most 429496730 bytes",
		"make stream MQRUN_DLQ: is made for dlq.>, with 1 replicas and at most 107374182 bytes",
		"make stream MQRUN_P: is made for out.p, mqrun.MQRUN_P.>, with 1 replicas and at most 429496730 bytes",
		"use stream ORDERS: it is not mqrun's and is used as it is by p; only a consumer is made on it",
		"make stream SEEN: is made for seen.>, mqrun.SEEN.>, with 1 replicas and at most 429496730 bytes",
	)
	r.apply(onlineYAML)
	const use = "use stream ORDERS: it is not mqrun's and is used as it is by p; only a consumer is made on it"
	want(onlineYAML, use)

	other := strings.NewReplacer(`"seen.>", duplicate_window: 1m`, `["seen.>", "heard.>"], max_age: 1h`, "order: strict", "ack_wait: 5s").Replace(onlineYAML)
	want(other,
		"set consumer mqrun-p on stream MQRUN: ack_wait goes from 30s to 5s",
		"set consumer mqrun-p on stream ORDERS: ack_wait goes from 30s to 5s",
		use,
		"add stream SEEN: adds the subjects heard.>",
		"set stream SEEN: max_age goes from 0s to 1h0m0s",
		"set stream SEEN: duplicate_window goes from 1m0s to 2m0s",
	)
	renamed := strings.Replace(onlineYAML, "  p: {", "  q: { dead_letter: none,", 1)
	got := strings.Join(r.compare(renamed), "\n")
	if want := "differ consumer mqrun-p on stream ORDERS: is of no pipeline, and keeps what it has not read from being purged; to remove it: mqrun consumers rm p"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s", got, want)
	}

	// A stream of that name that is not ours.
	if _, err := r.js().CreateStream(r.ctx(), jetstream.StreamConfig{Name: "MINE", Subjects: []string{"mine.old"}}); err != nil {
		t.Fatal(err)
	}
	refused := strings.Replace(onlineYAML, "SEEN: {", "MINE: { subjects: mine.new }\n  SEEN: {", 1)
	refused = strings.Replace(refused, "streams: { MINE", "streams:\n  MINE", 1)
	refused = strings.Replace(refused, "1m } }", "1m }", 1)
	if got := strings.Join(r.compare(refused), "\n"); !strings.Contains(got, "refuse stream MINE: is there and not mqrun's") {
		t.Errorf("got\n%s", got)
	}
}

func TestCompareNamesMissingRights(t *testing.T) {
	for denied, want := range map[string]string{
		"$JS.API.STREAM.LIST":         `nats: user "u" of account "$G" may not publish to "$JS.API.STREAM.LIST" (permissions violation); allow it on the server`,
		"$JS.API.STREAM.CREATE.MQRUN": `nats: user "u" of account "$G" may not publish to "$JS.API.STREAM.CREATE.MQRUN" (permissions violation); allow it on the server`,
		"out.p":                       `pipelines.p.to: user "u" of account "$G" may not publish to "out.p" (permissions violation); allow it on the server`,
	} {
		c := remoteServers(t, 1, restricted(denied))
		r := remoteRig(t, strings.Replace(c.URL(), "//", "//u:p@", 1), 1, map[string]native{"a": echo})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, problems, err := Compare(ctx, r.mq.NatsConn(), r.load(echoYAML))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, p := range problems {
			got[p.Path+": "+p.Message] = true
		}
		if diff := cmp.Diff(map[string]bool{want: true}, got); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", denied, diff)
		}
	}
}
