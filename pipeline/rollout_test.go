package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
)

func rolloutYAML(commit, rules string) string {
	return fmt.Sprintf(`
plugins: { live: { module: live.wasm, rollout: %s } }
pipelines:
  orders: { from: "orders.>", steps: [live], to: done.orders, commit: %s, retry: { attempts: 3, initial: 20ms, max: 20ms } }
`, rules, commit)
}

// rolloutRig runs the module "good"; rollouts tells how each ends.
func rolloutRig(t *testing.T, commit, rules string, plugins map[string]native) (r *rig, rollouts chan Rollout) {
	t.Helper()
	rollouts = make(chan Rollout, 10)
	r = &rig{t: t, sync: time.Minute, dir: t.TempDir(), native: plugins, log: &syncWriter{}}
	r.start()
	t.Cleanup(r.stop)
	r.m.o.Concluded = func(r Rollout) { rollouts <- r }
	r.write("live.wasm", "good")
	r.apply(rolloutYAML(commit, rules))
	return r, rollouts
}

// flood publishes until stop is called, which returns how many there were.
func (r *rig) flood() (stop func() int) {
	done := make(chan struct{})
	var feeding sync.WaitGroup
	n := 0
	feeding.Go(func() {
		for ; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			if _, err := r.js().Publish(r.ctx(), "orders.a", fmt.Append(nil, n)); err != nil {
				r.t.Error(err)
				return
			}
		}
	})
	return func() int {
		close(done)
		feeding.Wait()
		return n
	}
}

func by(name string) native {
	return func(m *host.Message, r *host.Result) error { emit(r, "", string(m.Data)+" by "+name); return nil }
}

// TestRollout_rolledBack: a module that fails too much loses its share, the
// event says which messages it failed, and it is not tried again until its file
// changes. Nothing is lost, and nothing is there twice.
func TestRollout_rolledBack(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			var mu sync.Mutex
			failed := map[uint64]bool{}
			bad := func(m *host.Message, r *host.Result) error {
				mu.Lock()
				failed[m.Sequence] = true
				mu.Unlock()
				r.Code = host.Retry
				return nil
			}
			r, rollouts := rolloutRig(t, commit, "{ canary: 20%, watch: 1h, max_failure_ratio: 0.1 }", map[string]native{"good": by("good"), "bad": bad, "better": by("better")})
			stop := r.flood()
			r.write("live.wasm", "bad")
			yaml := rolloutYAML(commit, "{ canary: 20%, watch: 1h, max_failure_ratio: 0.1 }")
			if p := r.apply(yaml); !slices.Equal(p.Rollout, []string{"live"}) || !slices.Equal(p.Swap, []string{"orders"}) {
				t.Errorf("plan %s", p)
			}
			ro := <-rollouts
			if ro.State != RolloutRolledBack || ro.Plugin != "live" || ro.To != nativeDigest("bad") || ro.New.Failed != ro.New.Handled || ro.New.Handled < rolloutEnough || ro.Old.Failed != 0 {
				t.Errorf("rollout %+v", ro)
			}
			if len(ro.Failed) != min(ro.New.Failed, rolloutListed) {
				t.Errorf("%d messages named of %d", len(ro.Failed), ro.New.Failed)
			}
			mu.Lock()
			for _, f := range ro.Failed {
				if !failed[f.Sequence] || f.Pipeline != "orders" || f.Stream != "MQRUN" || f.Reason != "retry" {
					t.Errorf("named %+v", f)
				}
			}
			mu.Unlock()
			// The same again: it stays with the one before.
			if p := r.apply(yaml); p.Changed() || !slices.Equal(p.Held, []string{"live"}) || len(p.Rollout) > 0 {
				t.Errorf("plan with the module that was rolled back: %s", p)
			}
			n := stop()
			r.whole(n, map[string]bool{"good": true})
			if got := r.m.Rollouts(); len(got) != 1 || got[0].State != RolloutRolledBack {
				t.Errorf("rollouts %+v", got)
			}
			// Another file is another try.
			r.write("live.wasm", "better")
			if p := r.apply(yaml); !slices.Equal(p.Rollout, []string{"live"}) || len(p.Held) > 0 {
				t.Errorf("plan with a third module: %s", p)
			}
			if got := r.m.Rollouts(); len(got) != 1 || got[0].State != RolloutTrying {
				t.Errorf("rollouts %+v", got)
			}
			// And what runs is no change at all.
			r.write("live.wasm", "good")
			if p := r.apply(yaml); len(p.Held)+len(p.Rollout) > 0 {
				t.Errorf("plan with the first module: %s", p)
			}
		})
	}
}

// whole waits for the outputs of n inputs and compares them with what there
// must be: each input once, by one of the modules.
func (r *rig) whole(n int, modules map[string]bool) map[string]int {
	r.t.Helper()
	seen, count := map[string]int{}, map[string]int{}
	for _, m := range r.read("MQRUN_ORDERS", "done.orders", n) {
		id, name, _ := strings.Cut(string(m.Data()), " by ")
		seen[id]++
		count[name]++
	}
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			r.t.Errorf("input %d has %d outputs", i, seen[fmt.Sprint(i)])
		}
	}
	r.idle("orders")
	if got := r.count("MQRUN_ORDERS", "done.orders"); got != n {
		r.t.Errorf("%d outputs of %d inputs", got, n)
	}
	for name := range count {
		if !modules[name] {
			r.t.Errorf("outputs by %q", name)
		}
	}
	return count
}

// TestRollout_taken: a module that does as well as the one before gets its
// share, and then everything.
func TestRollout_taken(t *testing.T) {
	for _, commit := range []string{"each", "batch"} {
		t.Run(commit, func(t *testing.T) {
			rules := "{ canary: 25%, watch: 1s, max_failure_ratio: 0.05 }"
			r, rollouts := rolloutRig(t, commit, rules, map[string]native{"good": by("good"), "next": by("next")})
			stop := r.flood()
			r.write("live.wasm", "next")
			r.apply(rolloutYAML(commit, rules))
			ro := <-rollouts
			if ro.State != RolloutTaken || ro.New.Failed != 0 || ro.New.Handled < rolloutEnough {
				t.Errorf("rollout %+v", ro)
			}
			all := float64(ro.New.Handled + ro.Old.Handled)
			if share := float64(ro.New.Handled) / all; share < 0.15 || share > 0.35 {
				t.Errorf("the new module got %.0f %% of %.0f messages, want about 25 %%", 100*share, all)
			}
			n := stop()
			count := r.whole(n, map[string]bool{"good": true, "next": true})
			r.pub("orders.a", fmt.Sprint(n))
			r.whole(n+1, map[string]bool{"good": true, "next": true})
			if count["next"] == 0 || count["good"] == 0 {
				t.Errorf("outputs by module: %v", count)
			}
			if p := r.apply(rolloutYAML(commit, rules)); p.Changed() || len(p.Rollout) > 0 {
				t.Errorf("plan after it was taken: %s", p)
			}
			if r.m.modules.plugins["live"].digest != nativeDigest("next") || len(r.m.modules.trials) > 0 {
				t.Error("the new module is not the one that runs")
			}
		})
	}
}

// TestTrial_judge: when a rollout ends, and how.
func TestTrial_judge(t *testing.T) {
	const watch = 30 * time.Second
	for _, tt := range []struct {
		name     string
		old, new Tally
		age      time.Duration
		want     string
	}{
		{"nothing yet", Tally{}, Tally{}, time.Second, ""},
		{"good, too early", Tally{1000, 0}, Tally{100, 0}, watch - 1, ""},
		{"good", Tally{1000, 0}, Tally{100, 0}, watch, RolloutTaken},
		{"bad, at once", Tally{1000, 0}, Tally{20, 3}, time.Second, RolloutRolledBack},
		{"bad, too few to tell", Tally{1000, 0}, Tally{19, 19}, time.Second, ""},
		{"two of twenty can be chance", Tally{1000, 0}, Tally{20, 2}, time.Second, ""},
		{"but not at the end", Tally{1000, 0}, Tally{20, 2}, watch, RolloutRolledBack},
		{"within the bound", Tally{1000, 0}, Tally{100, 5}, watch, RolloutTaken},
		{"as bad as the one before", Tally{1000, 500}, Tally{100, 54}, watch, RolloutTaken},
		{"worse than the one before", Tally{1000, 500}, Tally{100, 56}, time.Second, RolloutRolledBack},
		{"few messages wait", Tally{10, 0}, Tally{3, 0}, 9 * watch, ""},
		{"few messages, good", Tally{10, 0}, Tally{3, 0}, 10 * watch, RolloutTaken},
		{"few messages, bad", Tally{10, 0}, Tally{3, 1}, 10 * watch, RolloutRolledBack},
		{"no messages", Tally{}, Tally{}, 10 * watch, RolloutTaken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begun := time.Now()
			tr := &trial{begun: begun, rules: config.Rollout{Canary: 0.1, Watch: watch, MaxFailureRatio: 0.05}, oldDone: tt.old, newDone: tt.new}
			if got := tr.judge(begun.Add(tt.age)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if got := tr.judge(begun.Add(100 * watch)); tt.want != "" && got != "" {
				t.Errorf("decided twice: %q", got)
			}
		})
	}
}

// TestChain_pick: the share is met, and a message that comes again goes to what
// ran before.
func TestChain_pick(t *testing.T) {
	for _, share := range []float64{0.001, 0.1, 0.5, 1} {
		c := newChain(&config.Pipeline{}, 1, nil, nil)
		c.canary, c.share = newChain(&config.Pipeline{}, 1, nil, nil), share
		n := 0
		for seq := range uint64(100_000) {
			got := c.pick(seq, false)
			if got == c.canary {
				n++
			}
			if c.pick(seq, true) != c {
				t.Fatalf("message %d goes to the new module again", seq)
			}
		}
		if want := share * 100_000; float64(n) < want*0.98-1 || float64(n) > want*1.02+1 {
			t.Errorf("share %v: %d of 100,000", share, n)
		}
	}
}

// TestTold: a failure counts for the module in whose step it was, if that is on
// trial, else for all.
func TestTold(t *testing.T) {
	a, b := &trial{plugin: "a"}, &trial{plugin: "b"}
	steps := []step{{name: "a"}, {name: "b"}, {name: "c"}}
	canary := newChain(&config.Pipeline{}, 1, steps, nil)
	main := newChain(&config.Pipeline{}, 1, steps, nil).beside(canary, []*trial{a, b})
	tell := func(c *chain, at int, act action) {
		w := &walk{pipe: &walker{name: "p"}, s: &slot{attempt: 1, chain: c, src: &source{stream: "S"}}, step: &steps[at]}
		w.told(verdict{action: act, reason: "trap"})
	}
	for _, c := range []*chain{canary, main} {
		tell(c, 0, actAck)
		tell(c, 0, actNak)
		tell(c, 1, actDead)
		tell(c, 2, actNak)
	}
	got := map[string]Tally{"a new": a.newDone, "a old": a.oldDone, "b new": b.newDone, "b old": b.oldDone}
	want := map[string]Tally{"a new": {4, 2}, "a old": {4, 2}, "b new": {4, 2}, "b old": {4, 2}}
	if !maps.Equal(got, want) || len(a.failed) != 2 || len(b.failed) != 2 {
		t.Errorf("got %v, want %v; failed %v, %v", got, want, a.failed, b.failed)
	}
}
