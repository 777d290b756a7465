package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// Reach says where the server of a configuration is, for whoever only wants to
// ask what runs there: the configuration may have problems, or be gone. A
// value that cannot be read is its default; plugins are not looked at.
func Reach(o LoadOptions) (Server, NATS, error) {
	sources, dir, err := open(o.Files)
	if err != nil && len(o.Files) > 0 {
		sources = nil
		folder := o.Files[0]
		if info, statErr := os.Stat(folder); statErr != nil || !info.IsDir() {
			folder = filepath.Dir(folder)
		}
		dir, err = filepath.Abs(folder)
	}
	if err != nil {
		return Server{}, NATS{}, fmt.Errorf("read config: %w", err)
	}
	l := newLoader(o)
	l.lenient = true
	c, err := l.layers(sources, dir, o)
	if err != nil {
		return Server{}, NATS{}, err
	}
	return c.Server, c.NATS, nil
}
