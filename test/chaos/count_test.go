package main

import (
	"slices"
	"testing"
)

func TestExpect(t *testing.T) {
	e := expect([]string{"ee000001-", "fr000002-", "re000003-", "te000004-", "ed000005-", "ft000006-"})
	slices.Sort(e.mid)
	want := []string{"d000005-", "e000001-", "e000004-", "r000002a", "r000002b", "t000006a", "t000006b"}
	if !slices.Equal(e.mid, want) {
		t.Errorf("mid %q; want %q", e.mid, want)
	}
	slices.Sort(e.out)
	if want := []string{"000001-", "000004-", "000006a", "000006b"}; !slices.Equal(e.out, want) {
		t.Errorf("out %q; want %q", e.out, want)
	}
	slices.Sort(e.dead)
	if want := []string{"r000002a", "r000002b", "re000003-"}; !slices.Equal(e.dead, want) {
		t.Errorf("dead %q; want %q", e.dead, want)
	}
	if e.calls != 2+3+1+3+2+5 {
		t.Errorf("%d calls", e.calls)
	}
}

func TestCompareFindsWhatIsWrong(t *testing.T) {
	lost, twice, strange := compare([]string{"a", "b", "c"}, map[string]int{"a": 1, "b": 2, "x": 1})
	if !slices.Equal(lost, []string{"c"}) || !slices.Equal(twice, []string{"b"}) || !slices.Equal(strange, []string{"x"}) {
		t.Errorf("lost %q, twice %q, strange %q", lost, twice, strange)
	}
}
