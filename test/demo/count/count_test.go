package count_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/test/demo/count"
)

const input = `{"id":"weak","properties":{"mag":1.0,"type":"earthquake"}}
{"id":"great","properties":{"mag":7.1,"type":"earthquake"}}
{"id":"bang","properties":{"mag":2.6,"type":"quarry blast"}}
{"id":"odd","properties":{"mag":"2.6","type":"earthquake"}}
`

// broker is a server with the streams of the demo in which a test plays the
// pipelines.
type broker struct {
	t    *testing.T
	js   jetstream.JetStream
	made map[string]string // stream -> <stream>:<creation>
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	q, err := mq.Open(t.Context(), mq.Options{StoreDir: t.TempDir(), SyncInterval: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	b := &broker{t, q.JetStream(), map[string]string{}}
	for name, subjects := range map[string][]string{
		"MQRUN": {"ingest.>"}, "MQRUN_DLQ": {"dlq.>"}, "MQRUN_PARSE": {count.Parsed},
		"MQRUN_CLASSIFY": {count.Minor, count.Strong, count.Major}, "MQRUN_ALERT": {count.Alerts},
	} {
		info, err := mq.EnsureStream(t.Context(), q.JetStream(), mq.StreamSpec{Name: name, Subjects: subjects})
		if err != nil {
			t.Fatal(err)
		}
		b.made[name] = name + ":" + strconv.FormatInt(info.Created.UnixNano(), 36)
	}
	return b
}

func (b *broker) publish(subject, id, data string, headers ...string) {
	b.t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(data)
	m.Header.Set(nats.MsgIdHdr, id)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	if _, err := b.js.PublishMsg(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
}

// id is what a pipeline gives to what it makes of a message.
func (b *broker) id(pipeline, stream string, sequence int, path string) string {
	return fmt.Sprintf("%s:%s:%d:%s", pipeline, b.made[stream], sequence, path)
}

func (b *broker) play() {
	b.t.Helper()
	lines := strings.Split(input, "\n")
	for i := range 4 {
		b.publish(count.Ingest, "in.ndjson:"+strconv.Itoa(i+1), lines[i])
	}
	for i, quake := range []string{"weak", "great", "bang"} {
		b.publish(count.Parsed, b.id("parse", "MQRUN", i+1, "0"), `{"id":"`+quake+`"}`)
	}
	b.publish(count.Minor, b.id("classify", "MQRUN_PARSE", 1, "0.0"), `{"id":"weak"}`)
	b.publish(count.Major, b.id("classify", "MQRUN_PARSE", 2, "0.0"), `{"id":"great"}`)
	b.publish(count.Alerts, b.id("alert", "MQRUN_CLASSIFY", 2, "0"), `{"id":"great"}`)
	b.publish("dlq.parse", b.id("parse", "MQRUN", 4, "dlq"), lines[3], "Mqrun-Original-Nats-Msg-Id", "in.ndjson:4", "Mqrun-Reason", "rejected")
}

func (b *broker) remove(stream string, sequence uint64) {
	b.t.Helper()
	st, err := b.js.Stream(b.t.Context(), stream)
	if err == nil {
		err = st.DeleteMsg(b.t.Context(), sequence)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestCount: a count that cannot see a loss proves nothing.
func TestCount(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		change                func(b *broker)
		lost, twice, odd      int
		result, mentionsFirst string
	}{
		{
			name: "as it has to be", change: func(*broker) {},
			result: "RESULT inputs=4 outputs=2 filtered=1 dead=1 alerts=1 lost=0 duplicates=0",
		},
		{
			name: "an output is lost", change: func(b *broker) { b.remove("MQRUN_CLASSIFY", 1) },
			lost: 1, odd: 1, // and seems to be filtered
			result: "RESULT inputs=4 outputs=1 filtered=2 dead=1 alerts=1 lost=1 duplicates=0", mentionsFirst: "quakes.minor in.ndjson:1",
		},
		{
			name: "an alert is lost", change: func(b *broker) { b.remove("MQRUN_ALERT", 1) }, lost: 1,
			result: "RESULT inputs=4 outputs=2 filtered=1 dead=1 alerts=0 lost=1 duplicates=0", mentionsFirst: "alerts.outbox in.ndjson:2",
		},
		{
			name: "a dead letter is lost", change: func(b *broker) { b.remove("MQRUN_DLQ", 1) }, lost: 1,
			result: "RESULT inputs=4 outputs=2 filtered=1 dead=0 alerts=1 lost=1 duplicates=0", mentionsFirst: "dlq.> in.ndjson:4",
		},
		{
			name: "an input is lost", change: func(b *broker) { b.remove("MQRUN", 3) }, lost: 1, odd: 1, // what was made of it comes from nowhere
			result: "RESULT inputs=3 outputs=2 filtered=1 dead=1 alerts=1 lost=1 duplicates=0", mentionsFirst: "ingest.quakes in.ndjson:3",
		},
		{
			name: "an output is there twice",
			change: func(b *broker) {
				b.publish(count.Minor, b.id("classify", "MQRUN_PARSE", 1, "0.1"), `{"id":"weak"}`)
			},
			twice: 1, odd: 1,
			result: "RESULT inputs=4 outputs=2 filtered=1 dead=1 alerts=1 lost=0 duplicates=1", mentionsFirst: "quakes.minor in.ndjson:1",
		},
		{
			name: "an output is where it should not be",
			change: func(b *broker) {
				b.publish(count.Strong, b.id("classify", "MQRUN_PARSE", 3, "0.0"), `{"id":"bang"}`)
			},
			odd: 1, lost: 1,
			result: "RESULT inputs=4 outputs=3 filtered=0 dead=1 alerts=1 lost=1 duplicates=0", mentionsFirst: "(filtered) in.ndjson:3",
		},
		{
			name: "a stranger's output",
			change: func(b *broker) {
				b.publish(count.Minor, "x", `{"id":"weaker"}`)
			},
			odd:    2, // the message, and what it holds
			result: "RESULT inputs=4 outputs=3 filtered=1 dead=1 alerts=1 lost=0 duplicates=0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBroker(t)
			b.play()
			tt.change(b)
			r, err := count.Count(t.Context(), b.js, expect(t, input))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Lost) != tt.lost || len(r.Duplicates) != tt.twice || len(r.Unexpected) != tt.odd || r.String() != tt.result {
				t.Errorf("got  %s, %q lost, %q twice, %q unexpected\nwant %s", r, r.Lost, r.Duplicates, r.Unexpected, tt.result)
			}
			if first := slices.Concat(r.Lost, r.Duplicates); tt.mentionsFirst != "" && first[0] != tt.mentionsFirst {
				t.Errorf("got %q, want %q", first[0], tt.mentionsFirst)
			}
			if r.OK() != (tt.lost+tt.twice+tt.odd == 0) {
				t.Errorf("OK is %t", r.OK())
			}
		})
	}
}

func expect(t *testing.T, text string) *count.Expected {
	t.Helper()
	file := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := count.Expect(file)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExpect_data holds the numbers of the README against the data itself.
func TestExpect_data(t *testing.T) {
	const data = "../../../plugins/examples/data/"
	e, err := count.Expect(data+"earthquakes.ndjson", data+"damaged.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	if e.Inputs() != 1732 {
		t.Errorf("%d inputs, want 1732", e.Inputs())
	}
}

func TestExpect_ambiguous(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.ndjson")
	line := `{"id":"weak","properties":{"mag":1.0}}` + "\n"
	if err := os.WriteFile(file, []byte(line+line), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := count.Expect(file); err == nil || !strings.Contains(err.Error(), "in.ndjson:1 and in in.ndjson:2") {
		t.Errorf("one earthquake in two lines: %v", err)
	}
}

// TestSettled: nothing counts before every consumer is through.
func TestSettled(t *testing.T) {
	b := newBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := expect(t, input)
	consumers := map[string]jetstream.Consumer{}
	for stream, pipeline := range map[string]string{"MQRUN": "parse", "MQRUN_PARSE": "classify", "MQRUN_CLASSIFY": "alert"} {
		cfg := jetstream.ConsumerConfig{Durable: "mqrun-" + pipeline, AckPolicy: jetstream.AckExplicitPolicy}
		if stream == "MQRUN_CLASSIFY" {
			cfg.FilterSubjects = []string{count.Strong, count.Major}
		}
		c, err := b.js.CreateConsumer(ctx, stream, cfg)
		if err != nil {
			t.Fatal(err)
		}
		consumers[pipeline] = c
	}
	settled := make(chan error, 1)
	go func() { settled <- count.Settled(ctx, b.js, e) }()
	b.play()
	acked := 0
	for _, step := range []struct {
		pipeline string
		n        int
	}{{"alert", 1}, {"classify", 3}, {"parse", 4}} {
		for range step.n {
			select {
			case err := <-settled:
				t.Fatalf("settled after %d of 8 acks: %v", acked, err)
			default:
			}
			m, err := consumers[step.pipeline].Next()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.DoubleAck(ctx); err != nil {
				t.Fatal(err)
			}
			acked++
		}
	}
	if err := <-settled; err != nil {
		t.Error(err)
	}
}
