package pipeline

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

var policy = config.Retry{Attempts: 3, Initial: time.Second, Factor: 2, Max: 3 * time.Second, Jitter: 0}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name    string
		o       outcome
		attempt int
		want    verdict
	}{
		{"ok", outcome{outputs: 2}, 1, verdict{action: actAck}},
		{"ok without outputs is no filter", outcome{}, 1, verdict{action: actAck}},
		{"all branches dropped", outcome{code: host.Drop, dropped: true}, 1, verdict{action: actAck, filtered: true}},
		{"some branches dropped", outcome{outputs: 1, dropped: true}, 1, verdict{action: actAck}},
		{"retry", outcome{code: host.Retry}, 1, verdict{action: actNak, reason: "retry", delay: time.Second}},
		{"second retry waits longer", outcome{code: host.Retry}, 2, verdict{action: actNak, reason: "retry", delay: 2 * time.Second}},
		{"the guest's delay wins", outcome{code: host.Retry, delayed: true, delay: time.Minute}, 1, verdict{action: actNak, reason: "retry", delay: time.Minute}},
		{"never without a delay", outcome{code: host.Retry, delayed: true}, 1, verdict{action: actNak, reason: "retry", delay: 20 * time.Millisecond}},
		{"at most a day", outcome{code: host.Retry, delayed: true, delay: 48 * time.Hour}, 1, verdict{action: actNak, reason: "retry", delay: 24 * time.Hour}},
		{"no attempt left", outcome{code: host.Retry}, 3, verdict{action: actDead, reason: "retry", exhausted: true}},
		{"bound lowered meanwhile", outcome{code: host.Retry}, 9, verdict{action: actDead, reason: "retry", exhausted: true}},
		{"reject at once", outcome{code: host.Reject}, 1, verdict{action: actDead, reason: "rejected"}},
		{"unknown code", outcome{code: -7}, 1, verdict{action: actNak, reason: "code", delay: time.Second}},
		{"unknown code, last", outcome{code: 4}, 3, verdict{action: actDead, reason: "code", exhausted: true}},
		{"trap", outcome{failure: "trap"}, 1, verdict{action: actNak, reason: "trap", delay: time.Second}},
		{"time-out is never dead at once", outcome{failure: "timeout"}, 2, verdict{action: actNak, reason: "timeout", delay: 2 * time.Second}},
		{"failed emit", outcome{failure: "emit"}, 3, verdict{action: actDead, reason: "emit", exhausted: true}},
	} {
		if got := decide(tt.o, tt.attempt, policy, 0.5); got != tt.want {
			t.Errorf("%s: %+v; want %+v", tt.name, got, tt.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := config.Retry{
			Initial: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "initial")), Factor: rapid.Float64Range(1, 10).Draw(t, "factor"),
			Max: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "max")), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		n := rapid.IntRange(1, 10_000).Draw(t, "attempt")
		rnd := rapid.Float64Range(0, 0.999999).Draw(t, "rnd")
		d := backoff(n, r, rnd)
		if most := time.Duration(float64(r.Max) * (1 + r.Jitter)); d < 0 || d > most {
			t.Fatalf("backoff %v is outside 0..%v", d, most)
		}
		if plain := backoff(n, r, 0.5); n > 1 && plain < backoff(n-1, r, 0.5) {
			t.Fatalf("attempt %d waits shorter than the one before", n)
		}
	})
}

func TestIdentity(t *testing.T) {
	at := time.Unix(0, 1700000000000000000)
	if got, want := newIdentity("p", "S", at).id(17, "2.0.1"), "p:S:"+"cwyvpelgpse8"+":17:2.0.1"; got != want {
		t.Errorf("id %q; want %q", got, want)
	}
	long := newIdentity("p", string(make([]byte, 200)), at)
	if got := long.id(1, "0"); len(got) != 64 || got == long.id(2, "0") {
		t.Errorf("long id %q", got)
	}
	seen := map[string]bool{}
	for _, i := range []*identity{newIdentity("a", "S", at), newIdentity("b", "S", at), newIdentity("a", "T", at), newIdentity("a", "S", at.Add(1))} {
		for _, seq := range []uint64{1, 11} {
			for _, path := range []string{"0", "1", "0.1", "dlq"} {
				seen[i.id(seq, path)] = true
			}
		}
	}
	if len(seen) != 4*2*4 {
		t.Errorf("%d distinct ids; want %d", len(seen), 4*2*4)
	}
}
