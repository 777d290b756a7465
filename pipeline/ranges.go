package pipeline

import "slices"

// ranges is a set of sequences as sorted runs: acks come almost in order, so
// there are few.
type ranges []run

type run struct{ first, last uint64 }

// find is the index of the first run that ends at n or later.
func (r ranges) find(n uint64) int {
	if k := len(r); k > 0 && r[k-1].last < n {
		return k
	}
	i, _ := slices.BinarySearchFunc(r, n, func(a run, n uint64) int {
		if a.last < n {
			return -1
		}
		return 1
	})
	return i
}

func (r ranges) has(n uint64) bool {
	i := r.find(n)
	return i < len(r) && r[i].first <= n
}

// add puts n into the set.
func (r *ranges) add(n uint64) {
	s := *r
	i := s.find(n)
	if i < len(s) && s[i].first <= n {
		return
	}
	before := i > 0 && s[i-1].last+1 == n
	after := i < len(s) && s[i].first == n+1
	switch {
	case before && after:
		s[i-1].last = s[i].last
		s = slices.Delete(s, i, i+1)
	case before:
		s[i-1].last = n
	case after:
		s[i].first = n
	default:
		s = slices.Insert(s, i, run{n, n})
	}
	*r = s
}

// above drops what is not above n.
func (r *ranges) above(n uint64) {
	s := *r
	i := s.find(n + 1)
	s = slices.Delete(s, 0, i)
	if len(s) > 0 && s[0].first <= n {
		s[0].first = n + 1
	}
	*r = s
}

// upTo drops what is above n.
func (r *ranges) upTo(n uint64) {
	s := *r
	i := s.find(n + 1)
	if i < len(s) && s[i].first <= n {
		s[i].last = n
		i++
	}
	*r = s[:i]
}
