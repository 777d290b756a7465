package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Position is a place in a file. For a value from the environment File is the
// variable's name, for one from the command line "--set path"; Line is 0 then.
type Position struct {
	File      string
	Line, Col int // from 1
}

// String is file:line:col, or only the file when there is no line.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Col)
}

// Problem is one reason why a configuration is refused. No text holds the
// value of a secret or of an expanded variable.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Col     int    `json:"col,omitempty"`
	Path    string `json:"path,omitempty"` // pipelines.alert.from[0]; "" = the whole file
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what the author may have meant, or ""
}

// String is `file:line:col: path: message (did you mean "hint"?)`.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(Position{p.File, p.Line, p.Col}.String())
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	b.WriteString(": " + p.Message)
	if p.Hint != "" {
		b.WriteString(" (did you mean " + strconv.Quote(p.Hint) + "?)")
	}
	return b.String()
}

// Problems is everything that is wrong with a configuration. As an error it
// has one line a problem.
type Problems []Problem

// Error is one problem a line, without a final newline.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Sort orders by file, line, column and path, and drops repetitions. It
// returns the sorted slice.
func (ps Problems) Sort() Problems {
	slices.SortFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(ps)
}

// index remembers where each key was written, by joined path.
type index struct {
	places map[string]Position
	lists  map[string]bool      // paths whose children are numbered
	hidden map[string]expansion // values that came from a variable
	first  string               // file that stands for what was never written
}

type expansion struct{ written, value string }

func newIndex() index {
	return index{map[string]Position{}, map[string]bool{}, map[string]expansion{}, ""}
}

func (x index) at(path []string) Position {
	for n := len(path); n > 0; n-- {
		if p, ok := x.places[join(path[:n])]; ok {
			return p
		}
	}
	return Position{x.first, 1, 1}
}

func (x index) has(path ...string) bool {
	_, ok := x.places[join(path)]
	return ok
}

// written is every path at which something is written, or below it.
func (x index) written() map[string]bool {
	all := make(map[string]bool, len(x.places))
	for key := range x.places {
		for !all[key] {
			all[key] = true
			i := strings.LastIndex(key, delim)
			if i < 0 {
				break
			}
			key = key[:i]
		}
	}
	return all
}

// replace sets the place of path. Unless it is a section, whose keys are
// merged, a later layer says it anew, so what was below it is forgotten.
func (x index) replace(path []string, at Position, s shape) {
	key := join(path)
	if _, again := x.places[key]; !again {
		x.places[key] = at
		return
	}
	if s == section || s == named || s == tree {
		return
	}
	delete(x.lists, key)
	for k := range x.places {
		if k == key || strings.HasPrefix(k, key+delim) {
			delete(x.places, k)
			delete(x.hidden, k)
		}
	}
	x.places[key] = at
}

func (x index) problem(message, hint string, path []string) Problem {
	return x.problemAt(x.at(path), message, hint, path)
}

func (x index) problemAt(at Position, message, hint string, path []string) Problem {
	if e, ok := x.hidden[join(path)]; ok && e.value != "" {
		is := strconv.Quote(e.written)
		message = strings.NewReplacer(strconv.Quote(e.value), is, quote(e.value), is).Replace(message)
		if strings.Contains(hint, e.value) {
			hint = ""
		}
	}
	return Problem{at.File, at.Line, at.Col, x.text(path), message, hint}
}

// text writes a path as people do: pipelines.alert.from[0].
func (x index) text(path []string) string {
	var b strings.Builder
	for i, key := range path {
		switch {
		case x.lists[join(path[:i])]:
			b.WriteString("[" + key + "]")
		case !plain(key):
			b.WriteString("[" + strconv.Quote(key) + "]")
		case i > 0:
			b.WriteString("." + key)
		default:
			b.WriteString(key)
		}
	}
	return b.String()
}

func plain(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// nearest is the option that s most likely misspells, or "".
func nearest(s string, options []string) string {
	best, hint := 1+len(s)/3, ""
	low := strings.ToLower(s)
	for _, o := range slices.Sorted(slices.Values(options)) {
		if d := distance(low, strings.ToLower(o)); d < best || d == best && hint == "" {
			best, hint = d, o
		}
	}
	return hint
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 1 << 10
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			same := 1
			if a[i] == b[j] {
				same = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+same)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
