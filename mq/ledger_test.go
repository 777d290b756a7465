package mq_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
)

const (
	fed   = 100
	taken = 50
)

// TestLIF06_DamagedStore: a store that lost a part says which, or is refused.
// The damage is done to a store that was closed and to a copy of one in use, as
// a killed process leaves it.
func TestLIF06_DamagedStore(t *testing.T) {
	closed, killed := t.TempDir(), filepath.Join(t.TempDir(), "store")
	q := open(t, mq.Options{StoreDir: closed})
	for i := range fed {
		publish(t, q, fmt.Sprintf("message %05d", i))
	}
	c, err := q.JetStream().CreateConsumer(deadline(t), mq.StreamName(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the ledger", func() bool {
		text, err := os.ReadFile(filepath.Join(closed, "STREAMS"))
		return err == nil && strings.Contains(string(text), `"messages":100`)
	})
	batch, err := c.Fetch(taken)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if err := m.DoubleAck(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(killed, os.DirFS(closed)); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	const index = "msgs/index.db"
	for name, c := range map[string]struct {
		harm func(t *testing.T, stream string)
		left uint64 // messages; 0 refuses
	}{
		"nothing":             {func(*testing.T, string) {}, fed},
		"no index":            {func(t *testing.T, s string) { remove(t, s, index) }, fed},
		"flipped":             {func(t *testing.T, s string) { flip(t, s, 22) }, 22},
		"flipped at the end":  {func(t *testing.T, s string) { flip(t, s, 98) }, 98},
		"flipped, no index":   {func(t *testing.T, s string) { flip(t, s, 22); remove(t, s, index) }, 22},
		"cut":                 {func(t *testing.T, s string) { cut(t, s) }, 50},
		"cut, no index":       {func(t *testing.T, s string) { cut(t, s); remove(t, s, index) }, 50},
		"no messages":         {func(t *testing.T, s string) { remove(t, s, "msgs/1.blk") }, 0},
		"no messages, index":  {func(t *testing.T, s string) { remove(t, s, "msgs/1.blk"); remove(t, s, index) }, 0},
		"no stream":           {func(t *testing.T, s string) { remove(t, s, "") }, 0},
		"no description":      {func(t *testing.T, s string) { remove(t, s, "meta.inf") }, refused},
		"damaged description": {func(t *testing.T, s string) { overwrite(t, filepath.Join(s, "meta.inf"), 20) }, refused},
	} {
		for kind, from := range map[string]string{"closed": closed, "killed": killed} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "store")
				if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
					t.Fatal(err)
				}
				c.harm(t, filepath.Join(dir, "jetstream", "$G", "streams", mq.StreamName()))
				var l logs
				q, err := mq.Open(deadline(t), mq.Options{StoreDir: dir, Logger: l.logger()})
				if c.left == refused {
					if !errors.Is(err, mq.ErrStoreDamaged) || !strings.Contains(err.Error(), "held 100 messages") {
						t.Fatalf("got %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer q.Close()
				st, err := q.JetStream().Stream(deadline(t), mq.StreamName())
				if err != nil {
					t.Fatal(err)
				}
				if n := st.CachedInfo().State.Msgs; n != c.left {
					t.Fatalf("%d messages are left; the test expects %d", n, c.left)
				}
				lost := uint64(0)
				for _, d := range q.Damages() {
					lost += d.End + d.Missing
				}
				if lost != fed-c.left {
					t.Errorf("lost %d of %d, and it says %+v", fed-c.left, fed, q.Damages())
				}
				if said := strings.Contains(l.String(), "the store is damaged"); said != (lost > 0) {
					t.Errorf("logged: %v\n%s", said, l.String())
				}
			})
		}
	}
}

const refused = 1 << 20

func remove(t *testing.T, stream, file string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(stream, file)); err != nil {
		t.Fatal(err)
	}
}

// flip damages the message at so many hundredths of the block.
func flip(t *testing.T, stream string, at int64) {
	t.Helper()
	path := filepath.Join(stream, "msgs/1.blk")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, st.Size()*at/100)
}

func overwrite(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 40)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] ^= 0xff
	}
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, stream string) {
	t.Helper()
	path := filepath.Join(stream, "msgs/1.blk")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, st.Size()/2); err != nil {
		t.Fatal(err)
	}
}
