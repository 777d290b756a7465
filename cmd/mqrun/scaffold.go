package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/rogpeppe/go-internal/txtar"
)

// templates are what init and plugin new write. sdk-go.txtar is the Go SDK, so
// that a plugin builds without a network; a test holds it against the source.
//
//go:embed template
var templates embed.FS

// scaffold is a set of files to be written, by path.
type scaffold map[string][]byte

// plugin adds the files of a new plugin in lang, below dir.
func (s scaffold) plugin(dir, lang, name string) error {
	if err := s.expand("template/"+lang, dir, name); err != nil {
		return err
	}
	if lang != "go" {
		return nil
	}
	sdk, err := templates.ReadFile("template/sdk-go.txtar")
	if err != nil {
		return err
	}
	for _, f := range txtar.Parse(sdk).Files {
		s[filepath.Join(dir, "sdk", f.Name)] = f.Data
	}
	return nil
}

// expand adds the templates of a folder.
func (s scaffold) expand(from, dir, name string) error {
	entries, err := templates.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		t, err := template.ParseFS(templates, path.Join(from, e.Name()))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, struct{ Name string }{name}); err != nil {
			return err
		}
		to := strings.TrimSuffix(e.Name(), ".tmpl")
		switch to {
		case "gitignore":
			to = ".gitignore"
		case "plugin.test.yaml":
			to = name + testSuffix
		}
		s[filepath.Join(dir, to)] = b.Bytes()
	}
	return nil
}

// write makes all files, or none: it never overwrites.
func (s scaffold) write() error {
	var there []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if _, err := os.Lstat(name); err == nil {
			there = append(there, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if there != nil {
		more := ""
		if len(there) > 1 {
			more = fmt.Sprintf(" and %d more", len(there)-1)
		}
		return fmt.Errorf("%s%s: there already, and nothing is overwritten; take another name or folder", there[0], more)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		// O_EXCL: somebody may have been faster.
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(s[name])
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
