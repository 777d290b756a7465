package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds that no sensible file meets: every item of a list is compared with
// every other, and every level of a map is part of a path.
const (
	maxItems = 1000
	maxDepth = 32
)

// entry decodes what stands at one key. ok is false when nothing is left of it
// but problems.
func (l *loader) entry(file string, n *yaml.Node, f field, path []string) (value any, ok bool) {
	if r, later := refused(l.later, path, nil); later {
		l.add(l.index.at(path), path, "", r.message(""))
		return nil, false
	}
	if !l.ordinary(file, n, path) {
		return nil, false
	}
	switch f.shape {
	case section, named:
		if null(n) {
			return map[string]any{}, true
		}
		if n.Kind != yaml.MappingNode {
			l.add(place(file, n), path, "", "must be a map of keys")
			l.broken[join(path)] = true
			return map[string]any{}, true // its name is known
		}
		return l.mapping(file, n, f, path), true
	case tree:
		if n.Kind != yaml.MappingNode && !null(n) {
			l.add(place(file, n), path, "", "must be a map of keys")
			return nil, false
		}
		return l.free(file, n, path), true
	case many:
		return l.sequence(file, n, f, path)
	default:
		s, ok := l.scalar(file, n, f, path)
		return s, ok
	}
}

// mapping decodes fixed keys or names.
func (l *loader) mapping(file string, n *yaml.Node, f field, path []string) map[string]any {
	out := map[string]any{}
	for k, v := range l.pairs(file, n, path) {
		at := place(file, k)
		below := child(path, k.Value)
		next, known := f.child(k.Value)
		if f.shape == named {
			next, known = field{key: k.Value, shape: section, fields: f.fields}, true
			if err := f.name(k.Value); err != nil {
				l.add(at, below, "", err.Error())
			}
			if first, twice := l.defined[join(below)]; twice {
				l.add(at, below, "", "is also defined at "+first.String())
				continue
			}
			l.defined[join(below)] = at
		}
		if !known {
			l.add(at, below, f.meant(k.Value), "unknown key")
			continue
		}
		if v.Kind == yaml.ScalarNode && !null(v) {
			at = place(file, v)
		}
		l.index.replace(below, at, next.shape)
		if value, ok := l.entry(file, v, next, below); ok {
			out[k.Value] = value
		} else {
			l.broken[join(below)] = true
		}
	}
	return out
}

// pairs iterates over the sound keys of a mapping.
func (l *loader) pairs(file string, n *yaml.Node, path []string) func(func(k, v *yaml.Node) bool) {
	return func(yield func(k, v *yaml.Node) bool) {
		seen := map[string]Position{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			at := place(file, k)
			switch {
			case k.Kind == yaml.ScalarNode && k.Tag == "!!merge":
				l.add(at, path, "", "merge keys are not supported; write the keys out")
				continue
			case k.Kind == yaml.AliasNode || k.Anchor != "":
				l.add(at, path, "", "anchors and aliases are not supported; quote wildcards")
				continue
			case k.Kind != yaml.ScalarNode || k.Style&yaml.TaggedStyle != 0:
				l.add(at, path, "", "a key must be plain text")
				continue
			case k.Value == "" || strings.ContainsFunc(k.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
				l.add(at, path, "", "a key is empty or holds a control character")
				continue
			}
			if first, twice := seen[k.Value]; twice {
				l.add(at, child(path, k.Value), "", "duplicate key; the first is at "+first.String())
				continue
			}
			seen[k.Value] = at
			if !yield(k, n.Content[i+1]) {
				return
			}
		}
	}
}

// ordinary refuses the parts of YAML that hide what a value is.
func (l *loader) ordinary(file string, n *yaml.Node, path []string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		l.add(place(file, n), path, "", "aliases are not supported; write the value out, and quote wildcards")
	case n.Anchor != "":
		l.add(place(file, n), path, "", "anchors are not supported; write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		l.add(place(file, n), path, "", "tags are not supported; quote text that looks like something else")
	default:
		return true
	}
	return false
}

func (l *loader) sequence(file string, n *yaml.Node, f field, path []string) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		s, ok := l.scalar(file, n, f, path)
		if !ok {
			return nil, false
		}
		if strings.Contains(s, ",") && n.Kind == yaml.ScalarNode {
			l.add(place(file, n), path, "["+s+"]", "a list is written [a, b]")
			return nil, false
		}
		return []any{s}, true
	}
	if len(n.Content) > maxItems {
		l.add(place(file, n), path, "", fmt.Sprintf("has %d items; the limit is %d", len(n.Content), maxItems))
		return nil, false
	}
	l.index.lists[join(path)] = true
	out := make([]any, 0, len(n.Content))
	sound := true
	single := f
	single.shape = one
	for i, item := range n.Content {
		below := child(path, strconv.Itoa(i))
		l.index.replace(below, place(file, item), one)
		s, ok := "", l.ordinary(file, item, below)
		if ok {
			s, ok = l.scalar(file, item, single, below)
		}
		sound = sound && ok
		out = append(out, s) // keeps the places of the others
	}
	if !sound {
		l.broken[join(path)] = true
	}
	return out, true
}

// scalar decodes one value and keeps its text; what it means is decided again
// after the layers are merged, by the same function.
func (l *loader) scalar(file string, n *yaml.Node, f field, path []string) (string, bool) {
	at := place(file, n)
	switch {
	case n.Kind != yaml.ScalarNode && f.shape == many:
		l.add(at, path, "", "must be text or a list of texts")
		return "", false
	case n.Kind != yaml.ScalarNode:
		l.add(at, path, "", "must be one value")
		return "", false
	case f.subject && n.Style&(yaml.FoldedStyle|yaml.LiteralStyle) != 0:
		l.add(at, path, "", `starts a block of text; quote wildcards, as in ">"`)
		return "", false
	case null(n):
		l.add(at, path, "", "has no value; leave the key out for its default")
		return "", false
	}
	s, err := l.expand(n.Value)
	if err == nil {
		if strings.Contains(n.Value, "${") {
			l.index.hidden[join(path)] = expansion{n.Value, s}
		}
		err = l.value(s, f, path)
	}
	return s, l.report(err, at, path)
}

// value checks one text against its field.
func (l *loader) value(s string, f field, path []string) error {
	if f.shape == one {
		if r, later := refused(l.later, path, &s); later {
			return bad("", "%s", r.message(s))
		}
	}
	_, err := f.read(s)
	return err
}

func (l *loader) report(err error, at Position, path []string) bool {
	if err == nil {
		return true
	}
	hint := ""
	if b := (*badValue)(nil); errors.As(err, &b) {
		hint = b.hint
	}
	l.add(at, path, hint, err.Error())
	return false
}

// free decodes what has no schema: every scalar stays the text it was.
func (l *loader) free(file string, n *yaml.Node, path []string) any {
	switch {
	case len(path) > maxDepth:
		l.add(place(file, n), path[:maxDepth], "", fmt.Sprintf("is nested more than %d levels deep", maxDepth))
		return ""
	case n.Kind == yaml.MappingNode:
		out := map[string]any{}
		for k, v := range l.pairs(file, n, path) {
			below := child(path, k.Value)
			at := place(file, k)
			if v.Kind == yaml.ScalarNode && !null(v) {
				at = place(file, v)
			}
			l.index.replace(below, at, tree)
			if l.ordinary(file, v, below) {
				out[k.Value] = l.free(file, v, below)
			}
		}
		return out
	case n.Kind == yaml.SequenceNode:
		l.index.lists[join(path)] = true
		out := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			below := child(path, strconv.Itoa(i))
			l.index.replace(below, place(file, item), tree)
			if l.ordinary(file, item, below) {
				out = append(out, l.free(file, item, below))
			}
		}
		return out
	}
	if null(n) && len(path) == 3 { // config: with nothing below it
		return map[string]any{}
	}
	s, err := l.expand(n.Value)
	l.report(err, place(file, n), path)
	return s
}

// child is path and one key more, in memory of its own.
func child(path []string, key string) []string {
	return append(append(make([]string, 0, len(path)+1), path...), key)
}
