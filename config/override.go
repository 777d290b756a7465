package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const prefix = "MQRUN_"

// dialect is how a layer above the files spells a path.
type dialect struct {
	between string
	fold    func(string) string
}

func envDialect() dialect {
	r := strings.NewReplacer("-", "_", ".", "_")
	return dialect{"__", func(s string) string { return r.Replace(strings.ToUpper(s)) }}
}

func flagDialect() dialect { return dialect{".", func(s string) string { return s }} }

// environment is the layer of the MQRUN_A__B variables, by flat keys. Other variables are
// nobody's business here; one with the prefix that names nothing is a problem.
func (l *loader) environment(written map[string]any) map[string]any {
	flat := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		at := Position{File: name}
		path, f, err := l.resolve(envDialect(), strings.ToUpper(name[len(prefix):]), prefix, written)
		if !l.report(err, at, path) {
			continue
		}
		l.override(flat, l.env[name], f, path, at)
	}
	return flat
}

// flags is the layer of a.b=c settings, by flat keys; of two for one key the last wins.
func (l *loader) flags(written map[string]any, set []string) map[string]any {
	flat := map[string]any{}
	for _, kv := range set {
		name, value, ok := strings.Cut(kv, "=")
		at := Position{File: "--set " + name}
		if !ok {
			at.File, _, _ = strings.Cut(at.File, ":") // what follows may be a secret
			l.add(at, nil, "", "is not of the form path=value")
			continue
		}
		path, f, err := l.resolve(flagDialect(), name, "", written)
		if !l.report(err, at, path) {
			continue
		}
		l.override(flat, value, f, path, at)
	}
	return flat
}

// resolve finds the one key that a spelt path means: a key of the schema, or a
// name or plugin setting that a file has. Keys may hold what separates keys,
// so the longest match wins.
func (l *loader) resolve(d dialect, spelt, before string, written map[string]any) ([]string, field, error) {
	f, have, rest := l.schema, written, spelt
	var path []string
	for {
		options := f.keys()
		if f.shape == named || f.shape == tree {
			options = slices.Sorted(maps.Keys(have))
		}
		if rest == "" {
			if f.shape == tree {
				return path, f, bad("", "is a map; name one key of it")
			}
			return path, f, bad("", "is a map; name one key of it: %s", strings.Join(options, ", "))
		}
		found, twice := "", ""
		for _, o := range options {
			s := d.fold(o)
			if rest != s && !strings.HasPrefix(rest, s+d.between) {
				continue
			}
			switch best := d.fold(found); {
			case found == "" || len(s) > len(best):
				found, twice = o, ""
			case len(s) == len(best):
				twice = o
			}
		}
		if twice != "" {
			return path, f, bad("", "is spelt alike for %s and %s", quote(found), quote(twice))
		}
		if found == "" {
			head, tail, more := strings.Cut(rest, d.between)
			folded := make([]string, len(options))
			for i, o := range options {
				folded[i] = d.fold(o)
			}
			hint := nearest(head, folded)
			if hint != "" {
				hint = before + spelt[:len(spelt)-len(rest)] + hint
				if more {
					hint += d.between + tail
				}
			}
			if f.shape == named || f.shape == tree {
				return path, f, bad(hint, "no file has %s", quote(head))
			}
			return path, f, bad(hint, "unknown key %s", quote(head))
		}
		path = child(path, found)
		if r, later := refused(l.later, path, nil); later {
			return path, f, bad("", "%s", r.message(""))
		}
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, d.fold(found)), d.between)
		below, isMap := have[found].(map[string]any)
		switch {
		case f.shape == tree && isMap:
		case f.shape == tree:
			_, isList := have[found].([]any)
			f = field{key: found, read: line}
			if isList {
				f.shape = many
			}
		case f.shape == named:
			f = field{key: found, shape: section, fields: f.fields}
		default:
			f, _ = f.child(found)
		}
		have = below
		if f.shape == one || f.shape == many {
			if rest != "" {
				return path, f, bad("", "has no keys below it")
			}
			return path, f, nil
		}
	}
}

// override puts one text at a path. It is taken as it is, without expansion;
// "" stands for an empty text, and lists are written [a, b].
func (l *loader) override(flat map[string]any, text string, f field, path []string, at Position) {
	if text == "" {
		l.add(at, path, "", `is empty; unset it, or write "" for an empty text`)
		return
	}
	if text == `""` || text == `''` {
		text = ""
	}
	l.index.replace(path, at, one)
	if f.shape == many && strings.HasPrefix(strings.TrimSpace(text), "[") {
		if items, ok := l.flow(text, f, path, at); ok {
			flat[join(path)] = items
		}
		return
	}
	if f.shape == many && strings.Contains(text, ",") {
		l.add(at, path, "["+text+"]", "a list is written [a, b]")
		return
	}
	if !l.report(l.value(text, f, path), at, path) {
		return
	}
	if f.shape == many {
		flat[join(path)] = []any{text}
		return
	}
	flat[join(path)] = text
}

// flow reads a list from one line.
func (l *loader) flow(text string, f field, path []string, at Position) ([]any, bool) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.SequenceNode {
		l.add(at, path, "", `is not a list such as [a, "b.*"]; quote wildcards`)
		return nil, false
	}
	l.index.lists[join(path)] = true
	var items []any
	for i, n := range doc.Content[0].Content {
		below := child(path, strconv.Itoa(i))
		l.index.replace(below, at, one)
		if n.Kind != yaml.ScalarNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 || null(n) {
			l.add(at, below, "", "must be one text")
			return nil, false
		}
		if !l.report(l.value(n.Value, f, below), at, below) {
			return nil, false
		}
		items = append(items, n.Value)
	}
	return items, true
}
