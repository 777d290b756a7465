package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/web"
)

const (
	webGrace = 5 * time.Second // for requests that run when the server stops
	authNone = "none"          // the server.auth that asks clients for nothing
	// spare is the garbage that may lie about: with some 12 MiB alive the collector
	// runs an eighth as often.
	spare = 64 << 20
)

func (c *cli) runCommand() *cobra.Command {
	var drain time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the pipelines",
		Long: `Runs the pipelines of the configuration in the foreground.

Changes of the configuration and of the files that it names are taken while
messages flow (--watch); mqrun reload, SIGHUP and POST /-/reload take them at
once. A bad configuration is refused with its problems and the old one goes on.
SIGTERM or an interrupt stops taking
messages, lets handlers finish and be acked for --drain at most, gives back the
rest, and exits with 0; with 1 when some were not done in time: they are
delivered again at the next start. A second signal exits at once with 130.`,
		Args: positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), drain) },
	}
	cmd.Flags().StringVar(&c.watch, "watch", watchOn, "take changes of the files: `on`, poll (without file events) or off")
	cmd.Flags().DurationVar(&drain, "drain", 30*time.Second, "how long messages in work may take when stopping (`duration`)")
	return cmd
}

// run starts the parts from the ground up. Each defer ends what was started,
// in the opposite order: pipelines, web, sandbox, server.
func (c *cli) run(ctx context.Context, drain time.Duration) (err error) {
	if drain < 0 {
		return usagef("--drain is %s; it takes a duration from 0s", drain)
	}
	if !slices.Contains([]string{watchOn, watchPoll, watchOff}, c.watch) {
		return usagef("--watch is %q; it takes on, poll or off", c.watch)
	}
	hup := make(chan os.Signal, 1) // from here on SIGHUP is no reason to die
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	files := c.newWatched()
	load := func() (*config.Config, error) { return c.loadNamed(c.configs, files.named) }
	cfg, err := load()
	if err != nil {
		return err
	}
	log := c.logger()
	for _, w := range cfg.Warnings {
		log.Warn("configuration", "warning", w.String())
	}
	var listener net.Listener
	if cfg.Web.Listen != "" {
		if listener, err = web.Listen(ctx, cfg.Web.Listen); err != nil {
			return err
		}
		defer listener.Close()
	}
	l := &live{}
	r := newReloader(load, l.Apply, files, log)
	stopWeb, failed := serveWeb(listener, l, r, log)
	defer func() { err = also(err, stopWeb()) }() // when the start fails
	q, err := openQueue(ctx, cfg, l.waits, log)
	if err != nil {
		return err
	}
	defer func() { err = also(err, q.Close()) }()
	rt, err := host.New(ctx, host.Options{
		CacheDir: filepath.Join(cfg.Server.StoreDir, "cache"), Logger: log, Memory: cfg.Host.Memory, Running: cfg.Host.Running,
	})
	if err != nil {
		return err
	}
	defer func() { err = also(err, rt.Close(context.WithoutCancel(ctx))) }()
	var m *pipeline.Manager
	err = q.Settled(ctx, func() (err error) {
		m, err = pipeline.Open(ctx, pipeline.Options{
			MQ: q, Host: rt, Logger: log, StoreDir: cfg.Server.StoreDir, Concluded: r.concluded,
		})
		return err
	})
	if err != nil {
		return err
	}
	l.open(q, m)
	defer func() { err = also(err, stopWeb()) }()
	stopAPI, err := serveAPI(q, endpoints(l, r), log)
	if err != nil {
		return err
	}
	defer stopAPI()
	defer func() { err = also(err, l.drain(ctx, drain)) }()

	if err := q.Settled(ctx, func() error { return r.start(ctx, cfg) }); err != nil {
		return err
	}
	if err := c.printStart(cfg, q, listener); err != nil {
		return err
	}
	stop, cancel := context.WithCancel(ctx)
	var loop sync.WaitGroup
	loop.Go(func() { r.loop(stop, hup) })
	loop.Go(func() { mq.RelaxGC(stop, spare) })
	loop.Go(func() { files.run(stop, r) })
	defer loop.Wait()
	defer cancel()
	select {
	case <-ctx.Done():
		log.Info("stopping; a second signal exits at once", "drain", drain)
		return nil
	case err := <-failed:
		return err
	}
}

// also keeps the first error's exit code and adds the second.
func also(err, more error) error {
	switch {
	case more == nil:
		return err
	case err == nil:
		return &exitError{exitFailed, more}
	}
	return errors.Join(err, more)
}

// openQueue opens the server. waiting is told what a cluster waits for.
func openQueue(ctx context.Context, cfg *config.Config, waiting func(string), log *slog.Logger) (*mq.EmbeddedNATS, error) {
	s := cfg.Server
	if cfg.NATS.URL != "" {
		// The crash journal and the compiled modules lie here all the same.
		if err := os.MkdirAll(s.StoreDir, 0o700); err != nil {
			return nil, fmt.Errorf("make folder (server.store_dir): %w", err)
		}
		o := remote(cfg)
		o.Bare, o.Logger = true, log
		return mq.Open(ctx, o)
	}
	o := mq.Options{
		StoreDir: s.StoreDir, MaxBytes: s.MaxBytes, Listen: s.Listen, MaxPayload: int(s.MaxPayload),
		Socket: filepath.Join(s.StoreDir, socketName), Bare: true, Logger: log,
	}
	if !s.Sync.Always {
		o.SyncInterval = s.Sync.Interval
	}
	if k := s.Cluster; k.Name != "" {
		o.Cluster, o.Replicas, o.Waiting = mq.Cluster{Name: k.Name, Listen: k.Listen, Routes: k.All()}, cfg.Replicas(), waiting
	}
	switch {
	case s.Listen == "" && s.Cluster.Name == "":
	case s.Auth == authNone:
		o.NoAuth = true
	case s.Auth != "":
		o.Token = s.Auth
	default:
		var err error
		if o.Token, err = storeToken(s.StoreDir); err != nil {
			return nil, fmt.Errorf("open store %q: %w; choose another folder (server.store_dir) or fix its permissions", s.StoreDir, err)
		}
	}
	return mq.Open(ctx, o)
}

func (l *live) drain(ctx context.Context, grace time.Duration) error {
	l.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := l.manager.Load().Drain(ctx); err != nil {
		return fmt.Errorf("stop pipelines: %w", err)
	}
	return nil
}

// serveWeb answers on l, if there is one, until stop is called. failed gets
// the error of a server that ends by itself.
func serveWeb(l net.Listener, p web.Pipelines, r web.Reloader, log *slog.Logger) (stop func() error, failed <-chan error) {
	if l == nil {
		return func() error { return nil }, nil
	}
	s := web.New(web.Options{Pipelines: p, Reloader: r, Logger: log})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	var once sync.Once
	return func() (err error) {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), webGrace)
			defer cancel()
			err = s.Close(ctx)
		})
		return err
	}, ended
}
