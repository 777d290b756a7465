package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tokenName is the file with the token of a server that nobody gave one.
const tokenName = "token"

// storeToken is the token in the store directory, made when there is none. It
// is written to the side and linked into place, so that of two processes that
// start at once both get the same one.
func storeToken(dir string) (string, error) {
	path := filepath.Join(dir, tokenName)
	if token, err := readToken(path); !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make store for the token: %w", err)
	}
	f, err := os.CreateTemp(dir, ".token-*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make token: %w", err)
	}
	return readToken(path)
}

func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("read token: %s is empty; remove it, and the next start makes a new one", path)
	}
	return token, nil
}
