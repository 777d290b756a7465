package pipeline

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRangesAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ranges
		model := map[uint64]bool{}
		number := rapid.Uint64Range(1, 40)
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			n := number.Draw(t, "n")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				r.above(n)
				for k := range model {
					if k <= n {
						delete(model, k)
					}
				}
			case 1:
				r.upTo(n)
				for k := range model {
					if k > n {
						delete(model, k)
					}
				}
			default:
				r.add(n)
				model[n] = true
			}
			for k := range uint64(42) {
				if r.has(k) != model[k] {
					t.Fatalf("has(%d) is %v in %v", k, r.has(k), r)
				}
			}
			if !slices.IsSortedFunc(r, func(a, b run) int { return int(a.first) - int(b.last) - 2 }) {
				t.Fatalf("runs touch or overlap: %v", r)
			}
		}
	})
}
