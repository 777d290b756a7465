package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/pipeline"
)

// guests are the modules that mqrun is measured with.
type guests struct{ dir string }

func buildGuests(ctx context.Context) (guests, error) {
	dir, err := os.MkdirTemp("", "mqrun-guests")
	if err != nil {
		return guests{}, err
	}
	sh := func(env []string, name string, args ...string) error {
		c := exec.CommandContext(ctx, name, args...)
		c.Env = append(os.Environ(), env...)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	wasi := []string{"GOOS=wasip1", "GOARCH=wasm"}
	return guests{dir}, errors.Join(
		sh(nil, "clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", filepath.Join(dir, "c-echo.wasm"), "guest/c/echo.c"),
		sh(wasi, "go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "go-echo.wasm"), "./guest/echo"),
		sh(wasi, "go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "go-json.wasm"), "./guest/json"),
	)
}

// engine is mqrun with one guest, as often as steps says one after the other.
func (g guests) engine(guest, commit string, steps int) engine {
	name := fmt.Sprintf("mqrun, %s, %s", commit, guest)
	if steps > 1 {
		name += fmt.Sprintf(", %d steps", steps)
	}
	return relaxed(engine{name, func(j *job) (func() error, error) {
		module, err := os.ReadFile(filepath.Join(g.dir, guest+".wasm"))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(j.dir, "guest.wasm"), module, 0o600); err != nil {
			return nil, err
		}
		file := filepath.Join(j.dir, "pipelines.yaml")
		yaml := fmt.Sprintf("plugins: { guest: { module: guest.wasm } }\npipelines: { job: { from: %s, steps: [%s], to: %s, commit: %s } }\n",
			inSubject, strings.TrimSuffix(strings.Repeat("guest,", steps), ","), outSubject, commit)
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			return nil, err
		}
		cfg, err := config.Load(config.LoadOptions{Files: []string{file}})
		if err != nil {
			return nil, err
		}
		rt, err := host.New(j.ctx, host.Options{CacheDir: filepath.Join(g.dir, "cache"), Logger: quiet})
		if err != nil {
			return nil, err
		}
		m, err := pipeline.Open(j.ctx, pipeline.Options{MQ: j.e, Host: rt, Logger: quiet, MaxBytes: 64 << 30, MaxPayload: 1 << 20})
		if err != nil {
			return nil, errors.Join(err, rt.Close(j.ctx))
		}
		if _, err := m.Apply(j.ctx, cfg); err != nil {
			return nil, errors.Join(err, m.Drain(j.ctx), rt.Close(j.ctx))
		}
		return func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), 30*time.Second)
			defer cancel()
			return errors.Join(m.Drain(ctx), rt.Close(ctx))
		}, nil
	}})
}
