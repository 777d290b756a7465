package meter

import "sort"

// maxRenamed locals of one loop. More would not fit the registers anyway.
const maxRenamed = 24

// localSet is which locals a loop uses, for charge.go's renaming.
type localSet struct {
	used []localUse
	full bool // there are more than maxRenamed: no set at all
}

type localUse struct {
	local uint32
	read  bool // first use is a read: it comes from before the loop, or the round before
	set   bool
}

func (s *localSet) find(local uint32) *localUse {
	for i := range s.used {
		if s.used[i].local == local {
			return &s.used[i]
		}
	}
	return nil
}

// use notes one of the loop itself.
func (s *localSet) use(local uint32, set bool) {
	if s.full {
		return
	}
	if u := s.find(local); u != nil {
		u.set = u.set || set
		return
	}
	s.add(localUse{local: local, read: !set, set: set})
}

// merge notes what a loop inside has used.
func (s *localSet) merge(in *localSet) {
	if in.full {
		s.full, s.used = true, s.used[:0]
	}
	for _, u := range in.used {
		if s.full {
			return
		}
		if known := s.find(u.local); known != nil {
			known.set = known.set || u.set
		} else {
			s.add(u)
		}
	}
}

func (s *localSet) add(u localUse) {
	if len(s.used) == maxRenamed {
		s.full, s.used = true, s.used[:0]
	}
	if !s.full {
		s.used = append(s.used, u)
	}
}

// localGroup is a run of locals of one type, from the index first.
type localGroup struct {
	first uint32
	kind  byte
}

// localKind finds the type of a local in groups, which starts at index 0.
func localKind(groups []localGroup, local uint32) byte {
	i := sort.Search(len(groups), func(i int) bool { return groups[i].first > local })
	return groups[i-1].kind
}
