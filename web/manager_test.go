package web_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/web"
)

const onePipeline = `
web: { listen: "" }
plugins: { echo: { module: echo.wasm } }
pipelines: { echo: { from: ingest.words, steps: [echo], to: words.out } }
`

// TestReady_manager: readiness follows what really runs.
func TestReady_manager(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := loadConfig(t)
	log := slog.New(slog.DiscardHandler)
	q, err := mq.Open(ctx, mq.Options{StoreDir: t.TempDir(), Bare: true, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	rt, err := host.New(ctx, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	m, err := pipeline.Open(ctx, pipeline.Options{MQ: q, Host: rt, Logger: log, MaxBytes: cfg.Server.MaxBytes, MaxPayload: cfg.Server.MaxPayload})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Drain(ctx)
	h := web.New(web.Options{Pipelines: m, Reloader: &desk{}, Logger: log}).Handler("127.0.0.1:0")

	if code, body := request(t, h, "GET", "/readyz", nil); code != 503 || !strings.HasPrefix(body, "starting") {
		t.Errorf("before the first configuration: %d %q", code, body)
	}
	if _, err := m.Apply(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if code, body := request(t, h, "GET", "/readyz", nil); code != 200 {
		t.Errorf("with everything running: %d %q", code, body)
	}
	if err := q.JetStream().DeleteConsumer(ctx, "MQRUN", "mqrun-echo"); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		code, body := request(t, h, "GET", "/readyz", nil)
		if code == 503 && strings.HasPrefix(body, "echo: lost: ") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("with the consumer gone: %d %q", code, body)
		}
	}
}

func loadConfig(t *testing.T) *config.Config {
	t.Helper()
	dir := t.TempDir()
	wasm, err := os.ReadFile("../host/testdata/echo.wasm")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pipelines.yaml")
	for name, data := range map[string][]byte{file: []byte(onePipeline), filepath.Join(dir, "echo.wasm"): wasm} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(config.LoadOptions{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
