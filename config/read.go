package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile is the most bytes of one file. A larger one is not a configuration
// but a device or a mistake.
const maxFile = 4 * mib

type source struct {
	name string // as the caller named it
	data []byte
}

// open reads every file, a directory as all its *.yaml in name order. dir is
// the folder that relative paths start from.
func open(paths []string) (sources []source, dir string, err error) {
	if len(paths) == 0 {
		return nil, "", errors.New("read config: no file was named")
	}
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, "", fmt.Errorf("read config: %w", err)
		}
		names, folder := []string{path}, filepath.Dir(path)
		if info.IsDir() {
			folder = path
			if names, err = members(path); err != nil {
				return nil, "", err
			}
		}
		if i == 0 {
			if dir, err = filepath.Abs(folder); err != nil {
				return nil, "", fmt.Errorf("read config: %w", err)
			}
		}
		for _, name := range names {
			data, err := readFile(name)
			if err != nil {
				return nil, "", err
			}
			sources = append(sources, source{name, data})
		}
	}
	return sources, dir, nil
}

func members(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // in name order
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !Member(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read config: %w", err)
		}
		if !info.IsDir() {
			names = append(names, path)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("read config: the directory %s holds no *.yaml file", dir)
	}
	return names, nil
}

// Member reports whether a file of a folder with this name is part of the
// configuration. A mounted ConfigMap keeps its versions in hidden entries.
func Member(name string) bool {
	return !strings.HasPrefix(name, ".") && filepath.Ext(name) == ".yaml"
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read config: %s is larger than %s", name, sizeText(maxFile))
	}
	return data, nil
}

// parse is the one document of a file as a mapping node, or nil after a problem.
func (l *loader) parse(src source) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(src.data))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		l.add(Position{src.name, 1, 1}, nil, "", "the file is empty")
		return nil
	case err != nil:
		l.syntax(src, err)
		return nil
	}
	switch err := dec.Decode(&next); {
	case err == nil:
		l.add(Position{src.name, max(next.Line, 1), max(next.Column, 1)}, nil, "", "a second document; a file holds one")
		return nil
	case !errors.Is(err, io.EOF):
		l.syntax(src, err)
		return nil
	}
	root := doc.Content[0]
	if null(root) {
		l.add(Position{src.name, 1, 1}, nil, "", "the file is empty")
		return nil
	}
	if root.Kind != yaml.MappingNode {
		l.add(place(src.name, root), nil, "", "the file must hold keys such as pipelines:")
		return nil
	}
	return root
}

var (
	atLine   = regexp.MustCompile(`^line ([0-9]+): `)
	wildcard = regexp.MustCompile(`(?:^|[\[{,:-])\s*([*>])`)
)

// syntax turns the parser's error into a problem. Its line is missing in the
// first line, and one short when the grammar failed rather than a character.
func (l *loader) syntax(src source, err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	at := Position{src.name, 1, 1}
	if m := atLine.FindStringSubmatch(text); m != nil {
		at.Line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
		if strings.HasPrefix(text, "did not find expected") && !strings.Contains(text, "character") {
			at.Line++
		}
	}
	lines := strings.Split(string(src.data), "\n")
	at.Line = min(at.Line, max(1, len(lines)-1))
	first, last := at.Line, at.Line
	if strings.HasPrefix(text, "unknown anchor") { // has no line at all
		first, last = 1, len(lines)
		text = "aliases are not supported"
	}
	for n := first; n <= last; n++ {
		if m := wildcard.FindStringSubmatchIndex(lines[n-1]); m != nil {
			at.Line, at.Col = n, m[2]+1
			l.add(at, nil, "", `quote wildcards, as in "orders.>" and "*" (`+text+")")
			return
		}
	}
	if strings.Contains(lines[at.Line-1], "\t") {
		text += "; YAML takes no tabs"
	}
	l.add(at, nil, "", "not YAML: "+text)
}

func place(file string, n *yaml.Node) Position { return Position{file, n.Line, n.Column} }

func null(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Style&yaml.TaggedStyle == 0
}
