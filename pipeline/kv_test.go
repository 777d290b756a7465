package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

func bucketsOf(names ...string) *config.Config {
	return &config.Config{Plugins: map[string]*config.Plugin{"p": {Name: "p", Allow: config.Allow{KV: names}}}}
}

func TestStoreKeepsKeysInBuckets(t *testing.T) {
	r := newRig(t, "web: { listen: \"\" }\n", nil)
	ctx, s := r.ctx(), &r.m.kv
	if ps := s.ensure(ctx, bucketsOf("seen", "other"), 1<<30); ps != nil {
		t.Fatal(ps)
	}
	if ps := s.ensure(ctx, bucketsOf("seen"), 1<<30); ps != nil { // it is there
		t.Fatal(ps)
	}
	bucket, err := r.mq.JetStream().KeyValue(ctx, "seen")
	if err != nil {
		t.Fatal(err)
	}
	status, err := bucket.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c := status.(*jetstream.KeyValueBucketStatus).StreamInfo().Config; c.Storage != jetstream.FileStorage || c.MaxBytes <= 0 || c.MaxBytes > 1<<30/10 {
		t.Errorf("%+v", c)
	}

	if _, _, err := s.Get(ctx, "seen", "a"); !errors.Is(err, host.ErrKVAbsent) {
		t.Errorf("absent: %v", err)
	}
	first, err := s.Create(ctx, "seen", "a", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, "seen", "a", nil); !errors.Is(err, host.ErrKVConflict) {
		t.Errorf("create twice: %v", err)
	}
	if _, err := s.Update(ctx, "seen", "a", nil, first+1); !errors.Is(err, host.ErrKVConflict) {
		t.Errorf("update of another revision: %v", err)
	}
	second, err := s.Update(ctx, "seen", "a", []byte("2"), first)
	if err != nil {
		t.Fatal(err)
	}
	if v, rev, err := s.Get(ctx, "seen", "a"); err != nil || string(v) != "2" || rev != second {
		t.Errorf("%q %d %v", v, rev, err)
	}
	if _, _, err := s.Get(ctx, "other", "a"); !errors.Is(err, host.ErrKVAbsent) {
		t.Errorf("of another bucket: %v", err)
	}
	if err := s.Delete(ctx, "seen", "a"); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get(ctx, "seen", "a"); !errors.Is(err, host.ErrKVAbsent) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := s.Create(ctx, "seen", "a", []byte("3")); err != nil {
		t.Errorf("create after delete: %v", err)
	}
	if _, err := s.Put(ctx, "seen", "a", make([]byte, 2<<20)); !errors.Is(err, host.ErrKVLimit) {
		t.Errorf("larger than a message may be: %v", err)
	}
	if _, err := s.Put(ctx, "nowhere", "a", nil); err == nil || errors.Is(err, host.ErrKVAbsent) {
		t.Errorf("no bucket: %v", err)
	}
}

func TestStoreHasRoomForSoManyBuckets(t *testing.T) {
	r := newRig(t, "web: { listen: \"\" }\n", nil)
	var names []string
	for i := range maxBuckets {
		names = append(names, "b"+strings.Repeat("x", i))
	}
	if ps := r.m.kv.ensure(r.ctx(), bucketsOf(names...), 1<<30); ps != nil {
		t.Fatal(ps)
	}
	ps := r.m.kv.ensure(r.ctx(), bucketsOf(append(names, "one-more")...), 1<<30)
	if len(ps) != 1 || !strings.Contains(ps[0].Message, "more than 16 buckets") {
		t.Errorf("%v", ps)
	}
}

// A guest's kv call ends up in the bucket, which Apply makes.
func TestKVOfAGuest(t *testing.T) {
	r := newRig(t, "web: { listen: \"\" }\n", nil)
	rt, err := host.New(r.ctx(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.Background()) })
	wasm, err := os.ReadFile(filepath.Join("..", "host", "testdata", "kv.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	r.write("kv.wasm", string(wasm))
	r.m.load = sandboxed(rt, &r.m.kv)
	r.apply(`plugins: { kv: { module: kv.wasm, allow: { kv: [seen] } } }
pipelines: { p: { from: in.x, steps: kv, to: out.x } }
`)
	const put = "\x01\x00\x00\x00" + "\x04\x00\x00\x00" + "\x01\x00\x00\x00" + "\x05\x00\x00\x00" + "\x00\x00\x00\x00"
	r.pub("in.x", put+"seen"+"k"+"value")
	r.settled("MQRUN", "p")
	if v, rev, err := r.m.kv.Get(r.ctx(), "seen", "k"); err != nil || string(v) != "value" || rev != 1 {
		t.Errorf("%q %d %v", v, rev, err)
	}
}
