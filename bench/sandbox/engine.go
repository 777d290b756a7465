package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
)

const pipelines = `
plugins:
  echo: { module: echo.wasm }
  other: { module: other.wasm, limits: { timeout: 200ms } }
pipelines:
  healthy: { from: healthy.in, steps: echo, to: healthy.out }
  other: { from: other.in, steps: other, to: other.out, dead_letter: none, retry: { attempts: 1 } }
`

// engine is an embedded server with both pipelines in a folder of its own.
type engine struct {
	dir string
	q   *mq.EmbeddedNATS
	rt  *host.Runtime
	m   *pipeline.Manager
	nc  *nats.Conn
	js  jetstream.JetStream
}

func start(ctx context.Context, other string) (e *engine, err error) {
	e = &engine{}
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	if e.dir, err = os.MkdirTemp("", "sandbox"); err != nil {
		return nil, err
	}
	for to, from := range map[string]string{"echo.wasm": hostGuest("echo"), "other.wasm": other} {
		b, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(e.dir, to), b, 0o600); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(e.dir, "pipelines.yaml")
	if err := os.WriteFile(file, []byte(pipelines), 0o600); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.LoadOptions{Files: []string{file}})
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	if e.q, err = mq.Open(ctx, mq.Options{StoreDir: cfg.Server.StoreDir, MaxBytes: cfg.Server.MaxBytes, SyncInterval: time.Second, Bare: true, Logger: quiet}); err != nil {
		return nil, err
	}
	if e.rt, err = host.New(ctx, host.Options{Logger: quiet, Memory: cfg.Host.Memory, Running: cfg.Host.Running}); err != nil {
		return nil, err
	}
	e.m, err = pipeline.Open(ctx, pipeline.Options{
		MQ: e.q, Host: e.rt, Logger: quiet, MaxBytes: cfg.Server.MaxBytes, MaxPayload: cfg.Server.MaxPayload, StoreDir: cfg.Server.StoreDir,
	})
	if err != nil {
		return nil, err
	}
	if _, err := e.m.Apply(ctx, cfg); err != nil {
		return nil, err
	}
	if e.nc, err = e.q.Connect("sandbox"); err != nil {
		return nil, err
	}
	e.js, err = jetstream.New(e.nc, jetstream.WithPublishAsyncMaxPending(4096))
	return e, err
}

func (e *engine) publish(subject string, data []byte) error {
	_, err := e.js.PublishAsync(subject, data)
	return err
}

// stop ends at once: what is still in work is not needed.
func (e *engine) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if e.nc != nil {
		e.nc.Close()
	}
	if e.m != nil {
		_ = e.m.Drain(ctx) // hostile guests may hold it up
	}
	if e.rt != nil {
		_ = e.rt.Close(context.Background())
	}
	if e.q != nil {
		_ = e.q.Close()
	}
	if e.dir != "" {
		_ = os.RemoveAll(e.dir)
	}
}
