package config_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mqrun/mqrun/config"
)

func TestSEC03_ModulesStayInTheirFolder(t *testing.T) {
	sum := sha256.Sum256([]byte("inside"))
	pin := hex.EncodeToString(sum[:])
	outside := t.TempDir()
	for _, dir := range []string{"conf/plugins", "conf/plugins-evil", "conf2"} {
		if err := os.MkdirAll(filepath.Join(outside, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(outside, "conf"))
	for name, data := range map[string]string{"plugins/x.wasm": "inside", "plugins-evil/x.wasm": "evil", "../secret.wasm": "s3cret", "../conf2/x.wasm": "s3cret"} {
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"plugins/out.wasm": "../../secret.wasm", "plugins/abs.wasm": filepath.Join(outside, "secret.wasm"), "away": "../conf2", "plugins/in.wasm": "x.wasm", "plugins/loop.wasm": "loop.wasm"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("plugins/fifo.wasm", 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Create("plugins/huge.wasm"); err != nil {
		t.Fatal(err)
	} else if err := f.Truncate(4 << 30); err != nil {
		t.Fatal(err)
	} else {
		f.Close()
	}
	for module, want := range map[string]string{
		"plugins/x.wasm":              "",
		"./plugins/../plugins/x.wasm": "",
		"plugins/in.wasm":             "",
		"plugins-evil/x.wasm":         "", // another folder, but under the config's
		"../secret.wasm":              `"../secret.wasm" leaves the config's folder`,
		"../../etc/passwd":            `"../../etc/passwd" leaves the config's folder`,
		"plugins/../../secret.wasm":   `"plugins/../../secret.wasm" leaves the config's folder`,
		"../conf2/x.wasm":             `"../conf2/x.wasm" leaves the config's folder`,
		"/proc/self/environ":          `"/proc/self/environ" is absolute; a module lies under the config's folder`,
		"/dev/zero":                   `"/dev/zero" is absolute; a module lies under the config's folder`,
		"plugins/out.wasm":            `"plugins/out.wasm" cannot be opened: it leads out of the config's folder`,
		"plugins/abs.wasm":            `"plugins/abs.wasm" cannot be opened: it leads out of the config's folder`,
		"away/x.wasm":                 `"away/x.wasm" cannot be opened: it leads out of the config's folder`,
		"plugins/loop.wasm":           `"plugins/loop.wasm" cannot be opened: too many levels of symbolic links`,
		"plugins/fifo.wasm":           `"plugins/fifo.wasm" is a FIFO; a module is a regular file`,
		"plugins":                     `"plugins" is a directory; a module is a regular file`,
		"plugins/huge.wasm":           `"plugins/huge.wasm" has 4294967296 bytes; the limit is 32MiB (plugins.a.limits.module)`,
		"plugins/missing.wasm":        `"plugins/missing.wasm" does not exist under the config's folder`,
		"plugins/x.wasm/y":            `"plugins/x.wasm/y" cannot be opened: not a directory`,
	} {
		t.Run(module, func(t *testing.T) {
			if err := os.WriteFile("pipelines.yaml", []byte("plugins:\n  a: { module: "+module+" }\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := config.Load(config.LoadOptions{Files: []string{"pipelines.yaml"}})
			got := ""
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "pipelines.yaml:2:16: plugins.a.module: ")
			}
			if got != want {
				t.Errorf("problem %q; want %q", got, want)
			}
		})
	}

	t.Run("pin", func(t *testing.T) {
		write := func(pin string) {
			if err := os.WriteFile("pipelines.yaml", []byte("plugins:\n  a: { module: plugins/x.wasm, sha256: "+pin+" }\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write(strings.ToUpper(pin))
		c, err := config.Load(config.LoadOptions{Files: []string{"pipelines.yaml"}})
		if err != nil {
			t.Fatal(err)
		}
		if data, err := c.Plugins["a"].ReadModule(); err != nil || string(data) != "inside" {
			t.Errorf("ReadModule = %q, %v", data, err)
		}
		if err := os.WriteFile("plugins/x.wasm", []byte("replaced"), 0o644); err != nil {
			t.Fatal(err)
		}
		replaced := sha256.Sum256([]byte("replaced"))
		other := `"plugins/x.wasm" has another content: its sha256 is ` + hex.EncodeToString(replaced[:])
		if data, err := c.Plugins["a"].ReadModule(); err == nil || data != nil || err.Error() != `read plugin "a": `+other {
			t.Errorf("ReadModule of another content = %q, %v", data, err)
		}
		if _, err := config.Load(config.LoadOptions{Files: []string{"pipelines.yaml"}}); err == nil || err.Error() != "pipelines.yaml:2:40: plugins.a.sha256: "+other {
			t.Errorf("Load = %v", err)
		}
		write("abc")
		if _, err := config.Load(config.LoadOptions{Files: []string{"pipelines.yaml"}}); err == nil || err.Error() != "pipelines.yaml:2:40: plugins.a.sha256: must be 64 hexadecimal digits" {
			t.Errorf("Load = %v", err)
		}
	})
}
