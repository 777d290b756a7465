package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// modules checks every plugin's file without giving away what is in it.
func (l *loader) modules(c *Config) {
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		l.complain("", "the config's folder cannot be opened: "+reason(err))
		return
	}
	defer root.Close()
	for _, name := range sorted(c.Plugins) {
		p := c.Plugins[name]
		if p.Module == "" {
			continue
		}
		p.Path = filepath.Join(c.Dir, p.Module)
		f, size, err := p.open(root)
		if err != nil {
			l.complain("", err.Error(), "plugins", name, "module")
			continue
		}
		if p.SHA256 != "" {
			sum := sha256.New()
			if _, err := io.Copy(sum, io.LimitReader(f, size)); err != nil {
				l.complain("", quote(p.Module)+" cannot be read: "+reason(err), "plugins", name, "module")
			} else if err := p.pinned(sum.Sum(nil)); err != nil {
				l.complain("", err.Error(), "plugins", name, "sha256")
			}
		}
		f.Close()
	}
}

// ReadModule reads the module's bytes with all checks of Load made anew on the
// very bytes that are returned: a regular file under the config's folder,
// within limits.module, with the pinned sha256.
func (p *Plugin) ReadModule() ([]byte, error) {
	wrap := func(err error) error { return fmt.Errorf("read plugin %q: %w", p.Name, err) }
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return nil, wrap(err)
	}
	defer root.Close()
	f, size, err := p.open(root)
	if err != nil {
		return nil, wrap(err)
	}
	defer f.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, wrap(fmt.Errorf("%s changed while it was read: %w", quote(p.Module), err))
	}
	if n, _ := f.Read(make([]byte, 1)); n > 0 {
		return nil, wrap(fmt.Errorf("%s changed while it was read", quote(p.Module)))
	}
	sum := sha256.Sum256(data)
	if err := p.pinned(sum[:]); err != nil {
		return nil, wrap(err)
	}
	return data, nil
}

// Stat looks at the module's file with all checks of ReadModule but that of its
// content.
func (p *Plugin) Stat() (fs.FileInfo, error) {
	wrap := func(err error) error { return fmt.Errorf("read plugin %q: %w", p.Name, err) }
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return nil, wrap(err)
	}
	defer root.Close()
	f, _, err := p.open(root)
	if err != nil {
		return nil, wrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, wrap(err)
	}
	return info, nil
}

// open opens the module below root. A link may lead elsewhere in the folder,
// never out of it; nothing but a regular file is opened for long.
func (p *Plugin) open(root *os.Root) (*os.File, int64, error) {
	name := filepath.FromSlash(p.Module)
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, 0, notRegular(p.Module, info.Mode())
	}
	var f *os.File
	if err == nil {
		// Without O_NONBLOCK a FIFO that takes the file's place would hang us.
		f, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, 0, fmt.Errorf("%s does not exist under the config's folder", quote(p.Module))
		}
		return nil, 0, fmt.Errorf("%s cannot be opened: %s", quote(p.Module), reason(err))
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = notRegular(p.Module, info.Mode())
	}
	if err == nil && info.Size() > p.Limits.Module {
		err = fmt.Errorf("%s has %d bytes; the limit is %s (plugins.%s.limits.module)", quote(p.Module), info.Size(), sizeText(p.Limits.Module), p.Name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (p *Plugin) pinned(sum []byte) error {
	if got := hex.EncodeToString(sum); p.SHA256 != "" && got != p.SHA256 {
		return fmt.Errorf("%s has another content: its sha256 is %s", quote(p.Module), got)
	}
	return nil
}

func notRegular(name string, mode fs.FileMode) error {
	kind := "a special file"
	switch {
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	}
	return fmt.Errorf("%s is %s; a module is a regular file", quote(name), kind)
}

// reason is an error without the path that our own text names already.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	if err.Error() == "path escapes from parent" {
		return "it leads out of the config's folder"
	}
	return err.Error()
}
