package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// language is how plugins in it are begun and built.
type language struct {
	name    string
	marks   string   // a pattern for the file that tells it
	env     []string // of the build
	line    []string // the build; OUT stands for the module, FILES for what marks found
	install string   // how to get what is missing
	example string   // a payload that the template takes
}

func allLanguages() []language {
	return []language{
		{
			name: "go", marks: "go.mod", env: []string{"GOOS=wasip1", "GOARCH=wasm"},
			line:    []string{"go", "build", "-trimpath", "-buildmode=c-shared", "-o", "OUT", "."},
			install: "install Go 1.24 or newer: https://go.dev/dl", example: `{"name":"Ada"}`,
		},
		{
			name: "c", marks: "*.c",
			line:    []string{"clang", "--target=wasm32", "-mbulk-memory", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", "OUT", "FILES"},
			install: "install clang and lld (Debian: apt-get install clang lld; macOS: brew install llvm lld)", example: "Ada",
		},
		{
			name: "wat", marks: "*.wat",
			line:    []string{"wat2wasm", "--debug-names", "-o", "OUT", "FILES"},
			install: "install wabt (Debian: apt-get install wabt; macOS: brew install wabt)", example: "Ada",
		},
	}
}

func languages() string {
	var names []string
	for _, l := range allLanguages() {
		names = append(names, l.name)
	}
	return strings.Join(names, ", ")
}

func languageNamed(name string) (language, error) {
	for _, l := range allLanguages() {
		if l.name == strings.ToLower(name) {
			return l, nil
		}
	}
	return language{}, usagef("--lang is %q; it takes %s", name, languages())
}

// languageOf finds the language of the sources in a folder.
func languageOf(dir string) (language, []string, error) {
	var marks []string
	for _, l := range allLanguages() {
		files, err := filepath.Glob(filepath.Join(dir, l.marks))
		if err != nil {
			return language{}, nil, err
		}
		if files != nil {
			for i := range files {
				files[i] = filepath.Base(files[i])
			}
			return l, files, nil
		}
		marks = append(marks, l.marks)
	}
	return language{}, nil, fmt.Errorf("%s has none of %s: name the folder of a plugin's source", dir, strings.Join(marks, ", "))
}

// command is the build line for a module.
func (l language) command(out string, files []string) []string {
	var line []string
	for _, word := range l.line {
		switch word {
		case "OUT":
			line = append(line, out)
		case "FILES":
			line = append(line, files...)
		default:
			line = append(line, word)
		}
	}
	return line
}
