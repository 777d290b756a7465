package mq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

func TestEnsureStreamAddsAndNeverTakesAway(t *testing.T) {
	q := open(t, mq.Options{Bare: true})
	js, ctx := q.JetStream(), deadline(t)
	for _, tt := range []struct {
		add, want []string
	}{
		{[]string{"b.x", "a.>"}, []string{"a.>", "b.x"}},
		{[]string{"a.y"}, []string{"a.>", "b.x"}},
		{[]string{"c"}, []string{"a.>", "b.x", "c"}},
		{[]string{"b.*"}, []string{"a.>", "b.*", "c"}}, // holds b.x
	} {
		info, err := mq.EnsureStream(ctx, js, mq.StreamSpec{Name: "S", Subjects: tt.add})
		if err != nil {
			t.Fatal(err)
		}
		got := info.Config.Subjects
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("after %q: %q; want %q", tt.add, got, tt.want)
		}
	}
	// What people changed by hand stays.
	st, err := js.Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	c := st.CachedInfo().Config
	c.Description, c.MaxMsgs = "mine", 7
	if _, err := js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	info, err := mq.EnsureStream(ctx, js, mq.StreamSpec{Name: "S", Subjects: []string{"d"}, MaxAge: time.Hour, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Config; c.Description != "mine" || c.MaxMsgs != 7 || c.MaxAge != 0 || c.MaxBytes != 1<<20 {
		t.Errorf("got %+v", c)
	}
}

func TestEnsureStreamLeavesStrangersAlone(t *testing.T) {
	q := open(t, mq.Options{Bare: true})
	js, ctx := q.JetStream(), deadline(t)
	foreign := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	if _, err := js.CreateStream(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		spec mq.StreamSpec
		want []string
	}{
		{mq.StreamSpec{Name: "ORDERS", Subjects: []string{"orders.>"}}, []string{"ORDERS"}},
		{mq.StreamSpec{Name: "MQRUN", Subjects: []string{"ingest.>", "orders.eu"}}, []string{"MQRUN", `"ORDERS"`, `"orders.eu"`, `"orders.>"`}},
	} {
		_, err := mq.EnsureStream(ctx, js, tt.spec)
		if !errors.Is(err, mq.ErrForeignStream) {
			t.Fatalf("got %v", err)
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v does not name %s", err, w)
			}
		}
	}
	// The same when the subject is added later.
	if _, err := mq.EnsureStream(ctx, js, mq.StreamSpec{Name: "MQRUN", Subjects: []string{"ingest.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := mq.EnsureStream(ctx, js, mq.StreamSpec{Name: "MQRUN", Subjects: []string{"orders.*.x"}}); !errors.Is(err, mq.ErrForeignStream) {
		t.Errorf("got %v", err)
	}
	st, err := js.Stream(ctx, "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	if c := st.CachedInfo().Config; len(c.Subjects) != 1 || c.Metadata["mqrun"] != "" {
		t.Errorf("the stranger's stream became %+v", c)
	}
}

func TestEnsureStreamRefuses(t *testing.T) {
	q := open(t, mq.Options{Bare: true})
	js, ctx := q.JetStream(), deadline(t)
	newer := jetstream.StreamConfig{Name: "NEWER", Subjects: []string{"n"}, Metadata: map[string]string{"mqrun": "2"}}
	if _, err := js.CreateStream(ctx, newer); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		spec mq.StreamSpec
		want string
	}{
		{mq.StreamSpec{Name: "S"}, "no subjects"},
		{mq.StreamSpec{Name: "S", Subjects: []string{"a b"}}, "blank"},
		{mq.StreamSpec{Name: "S", Subjects: []string{"a"}, Retention: "x"}, "retention"},
		{mq.StreamSpec{Name: "S", Subjects: []string{"a"}, Discard: "x"}, "discard"},
		{mq.StreamSpec{Name: "a.b", Subjects: []string{"a"}}, "a.b"},
		{mq.StreamSpec{Name: "NEWER", Subjects: []string{"n"}}, "newer format"},
	} {
		if _, err := mq.EnsureStream(ctx, js, tt.spec); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v; want %q", tt.spec, err, tt.want)
		}
	}
}

func TestEnsureStreamKinds(t *testing.T) {
	q := open(t, mq.Options{Bare: true})
	js, ctx := q.JetStream(), deadline(t)
	for i, tt := range []struct {
		spec mq.StreamSpec
		ok   func(jetstream.StreamConfig) bool
	}{
		{mq.StreamSpec{}, func(c jetstream.StreamConfig) bool {
			return c.MaxMsgSize == 1<<20-64<<10 && c.MaxBytes == -1 && c.Duplicates == 2*time.Minute && c.Discard == jetstream.DiscardNew
		}},
		{mq.StreamSpec{MaxMsgSize: -1}, func(c jetstream.StreamConfig) bool { return c.MaxMsgSize == -1 }},
		{mq.StreamSpec{MaxAge: time.Minute}, func(c jetstream.StreamConfig) bool { return c.Duplicates == time.Minute }},
		{mq.StreamSpec{DenyPurge: true}, func(c jetstream.StreamConfig) bool { return c.DenyPurge && !c.AllowRollup }},
		{mq.StreamSpec{Discard: "old"}, func(c jetstream.StreamConfig) bool { return c.Discard == jetstream.DiscardOld && c.AllowMsgSchedules }},
		{mq.StreamSpec{Retention: "interest"}, func(c jetstream.StreamConfig) bool { return c.Retention == jetstream.InterestPolicy }},
		{mq.StreamSpec{Retention: "workqueue"}, func(c jetstream.StreamConfig) bool { return c.Retention == jetstream.WorkQueuePolicy }},
	} {
		tt.spec.Name, tt.spec.Subjects = fmt.Sprint("S", i), []string{fmt.Sprint("s", i)}
		info, err := mq.EnsureStream(ctx, js, tt.spec)
		if err != nil {
			t.Errorf("%+v: %v", tt.spec, err)
		} else if !tt.ok(info.Config) {
			t.Errorf("%+v made %+v", tt.spec, info.Config)
		}
	}
}

// fill publishes until the stream is full and returns the last error.
func fill(t *testing.T, q *mq.EmbeddedNATS, subject string, size int) error {
	t.Helper()
	data := make([]byte, size)
	for range 100_000 {
		if err := q.Publish(deadline(t), subject, data); err != nil {
			return err
		}
	}
	t.Fatal("it is never full")
	return nil
}

func TestFullStreamsNeverLockDeadLettersAndBuckets(t *testing.T) {
	dir := t.TempDir()
	const maxBytes = 16 << 20
	q := open(t, mq.Options{StoreDir: dir, MaxBytes: maxBytes})
	js, ctx := q.JetStream(), deadline(t)
	b := mq.Budget(maxBytes, 2)
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "MQRUN_STATE", MaxBytes: b.KV})
	if err != nil {
		t.Fatal(err)
	}
	specs := []mq.StreamSpec{
		{Name: "MQRUN_A", Subjects: []string{"a", "mqrun.MQRUN_A.>"}, MaxBytes: b.Output},
		{Name: "MQRUN_B", Subjects: []string{"b", "mqrun.MQRUN_B.>"}, MaxBytes: b.Output},
		{Name: mq.StreamName(), Subjects: []string{"ingest.>"}, MaxBytes: b.Input},
	}
	for _, s := range specs {
		if _, err := mq.EnsureStream(ctx, js, s); err != nil {
			t.Fatal(err)
		}
	}
	check := func(q *mq.EmbeddedNATS, kv jetstream.KeyValue) {
		t.Helper()
		for _, subject := range []string{"ingest.x", "a", "b"} {
			if err := fill(t, q, subject, 300<<10); !errors.Is(err, mq.ErrQueueFull) {
				t.Fatalf("%s: %v", subject, err)
			}
			if err := fill(t, q, subject, 0); !errors.Is(err, mq.ErrQueueFull) { // to the brim
				t.Fatalf("%s: %v", subject, err)
			}
		}
		if err := q.Publish(ctx, "dlq.x", make([]byte, 100<<10)); err != nil {
			t.Errorf("dead letter: %v", err)
		}
		if _, err := kv.Put(ctx, "k", make([]byte, 1000)); err != nil {
			t.Errorf("bucket: %v", err)
		}
	}
	check(q, kv)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}

	// A store that was made smaller opens as well, and is as full.
	q = open(t, mq.Options{StoreDir: dir, MaxBytes: maxBytes / 4})
	kv, err = q.JetStream().KeyValue(ctx, "MQRUN_STATE")
	if err != nil {
		t.Fatal(err)
	}
	st, err := q.JetStream().Stream(ctx, mq.StreamName())
	if err != nil {
		t.Fatal(err)
	}
	before := st.CachedInfo().State.Msgs
	if got, want := st.CachedInfo().Config.MaxBytes, mq.Budget(maxBytes/4, 2).Input; got != want {
		t.Errorf("MQRUN takes %d bytes; want %d", got, want)
	}
	check(q, kv)
	if info, err := st.Info(ctx); err != nil || info.State.Msgs != before {
		t.Errorf("%d messages became %d: %v", before, info.State.Msgs, err)
	}
	// Purged, it takes messages again.
	if n, err := mq.PurgeBelow(ctx, q.JetStream(), mq.StreamName(), []string{"ingest.>"}, st.CachedInfo().State.LastSeq+1); err != nil || n != before {
		t.Fatalf("purged %d of %d: %v", n, before, err)
	}
	if err := q.Publish(ctx, "ingest.x", make([]byte, 300<<10)); err != nil {
		t.Error(err)
	}
}

func TestBudgetIsNeverMoreThanTheStore(t *testing.T) {
	for _, size := range []int64{1 << 20, 1<<20 + 7, 10 << 30, 1<<62 - 1} {
		for pipelines := range 20 {
			b := mq.Budget(size, pipelines)
			if sum := b.Input + b.Output*int64(pipelines) + b.DLQ + b.KV; sum > size || b.Input <= 0 {
				t.Errorf("Budget(%d, %d) = %+v, together %d", size, pipelines, b, sum)
			}
		}
	}
}

func TestPurgeAckedKeepsWhatSomebodyNeeds(t *testing.T) {
	q := open(t, mq.Options{Bare: true})
	js, ctx := q.JetStream(), deadline(t)
	if _, err := mq.EnsureStream(ctx, js, mq.StreamSpec{Name: "S", Subjects: []string{"in.>", "mqrun.S.>"}}); err != nil {
		t.Fatal(err)
	}
	pub := func(subject string) {
		t.Helper()
		if _, err := js.Publish(ctx, subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		pub("in.a")
		pub("mqrun.S.ckpt.p.0")
		pub("in.b")
	}
	purged := func(want uint64, age time.Duration, filters ...string) {
		t.Helper()
		if n, err := q.PurgeAcked(ctx, "S", age, filters...); err != nil || n != want {
			t.Errorf("purged %d; want %d: %v", n, want, err)
		}
	}
	purged(0, 0) // no consumer
	a := consumer(t, js, "a", "in.a")
	b := consumer(t, js, "b", "in.b")
	ackNext(t, a, 5)
	ackNext(t, b, 2)     // b's floor is 6
	purged(0, time.Hour) // too young
	purged(2, 0, "in.a")
	purged(2, 0)
	ackNext(t, b, 3)
	pub("in.b")
	held, err := b.Next()
	if err != nil {
		t.Fatal(err)
	}
	purged(6, 0) // not what b holds
	if err := held.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	purged(1, 0)
	st, err := js.Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	if got := st.CachedInfo().State.Msgs; got != 5 {
		t.Errorf("%d messages are left; want the 5 of mqrun", got)
	}
	for _, f := range []string{">", "mqrun.S.>", "*.S.ckpt.p.0", "mqrun.S.ckpt.p.0"} {
		if _, err := mq.PurgeBelow(ctx, js, "S", []string{f}, 100); !errors.Is(err, mq.ErrInvalidSubject) {
			t.Errorf("purge of %q: %v", f, err)
		}
	}
	if _, err := mq.PurgeBelow(ctx, js, "NONE", []string{"a"}, 100); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("purge of no stream: %v", err)
	}
}

func TestPurgeAckedByAge(t *testing.T) {
	q := open(t, mq.Options{})
	js, ctx := q.JetStream(), deadline(t)
	var times []time.Time
	for i := range 9 {
		if err := q.Publish(ctx, "ingest.a", nil); err != nil {
			t.Fatal(err)
		}
		st, err := js.Stream(ctx, mq.StreamName())
		if err != nil {
			t.Fatal(err)
		}
		if i == 3 { // a hole in front of the border
			if err := st.DeleteMsg(ctx, 4); err != nil {
				t.Fatal(err)
			}
		}
		times = append(times, st.CachedInfo().State.LastTime)
		if i == 4 {
			until(t, "a later clock", func() bool { return time.Since(times[4]) > 2*time.Second })
		}
	}
	c := consumerOn(t, js, mq.StreamName(), "c", "ingest.>")
	ackNext(t, c, 8)
	age := time.Since(times[4].Add(time.Millisecond)) // it may be that late until it is used
	if n, err := q.PurgeAcked(ctx, mq.StreamName(), age); err != nil || n != 4 {
		t.Errorf("purged %d; want 4: %v", n, err)
	}
}

func consumer(t *testing.T, js jetstream.JetStream, name, filter string) jetstream.Consumer {
	t.Helper()
	return consumerOn(t, js, "S", name, filter)
}

func consumerOn(t *testing.T, js jetstream.JetStream, stream, name, filter string) jetstream.Consumer {
	t.Helper()
	c, err := js.CreateConsumer(deadline(t), stream, jetstream.ConsumerConfig{Durable: name, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ackNext(t *testing.T, c jetstream.Consumer, n int) {
	t.Helper()
	for range n {
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.DoubleAck(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
