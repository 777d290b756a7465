// Package web shows and steers the pipelines over HTTP.
//
//	GET  /healthz   200 while the process serves
//	GET  /readyz    200 when every pipeline takes messages; else 503, and which does not and why
//	GET  /metrics   for Prometheus
//	POST /-/reload  reads the configuration again; the plan, or 422 and the problems
//	GET  /-/reload  how the last reload ended
//
// Answers are text, or JSON for a request with `Accept: application/json`.
//
// Browsers reach what listens on loopback, so every request must name this
// server in its Host header (a rebound DNS name does not), and a request that
// changes something must not come from another site.
//
// # Caveats
//
// There is no login in this version: whoever can connect can reload.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/mqrun/mqrun/pipeline"
)

// ErrListen is returned by Listen for an address that cannot be used.
var ErrListen = errors.New("web address cannot be used")

// Pipelines is what runs; a *pipeline.Manager is one.
type Pipelines interface {
	Status() []pipeline.Status
	// Generation counts the configurations applied; 0 before the first.
	Generation() uint64
	// Pending asks the server how many messages wait for each pipeline.
	Pending(ctx context.Context) map[string]uint64
}

// Reloader reads the configuration again and applies it.
type Reloader interface {
	// Reload returns what changed. The error is config.Problems when the
	// configuration is refused; the running one stays then.
	Reload(ctx context.Context) (pipeline.Plan, error)
	Last() Reload
}

// Reload is how a reload ended.
type Reload struct {
	Generation uint64    `json:"generation"`         // that runs since
	Config     string    `json:"config"`             // content hash of what runs since
	Time       time.Time `json:"time"`               // when it ended
	By         string    `json:"by"`                 // start, watch, signal, http, command or retry
	Plan       string    `json:"plan,omitempty"`     // of one that was applied
	Problems   []string  `json:"problems,omitempty"` // of one that was refused
	Refused    uint64    `json:"refused"`            // how many were, since the start
	Watching   string    `json:"watching,omitempty"` // events, polling and why, or off
}

// Options are the parts that a Server shows. All are needed but Logger.
type Options struct {
	Pipelines Pipelines
	Reloader  Reloader
	Logger    *slog.Logger // default slog.Default
}

// Server answers HTTP requests.
type Server struct {
	o    Options
	http *http.Server
}

const (
	maxBody     = 64 << 10
	maxHeader   = 16 << 10
	reloadLimit = 2 * time.Minute // compiling and draining take their time
)

// Listen takes the address, so that a clash is told before anything starts.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: %s is in use by another program; stop it, or set web.listen to another port (--set web.listen=127.0.0.1:0 takes a free one)", ErrListen, address)
	case err != nil:
		return nil, fmt.Errorf("%w: web.listen: %w", ErrListen, err)
	}
	return l, nil
}

// New makes a server. It answers once Serve runs.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{o: o}
	s.http = &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Logger.With("part", "web").Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers on l until Close, and then returns nil.
func (s *Server) Serve(l net.Listener) error {
	s.http.Handler = s.Handler(l.Addr().String())
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve web: %w", err)
	}
	return nil
}

// Close takes no new requests and waits for the running ones until ctx is done.
func (s *Server) Close(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("close web: %w", err), s.http.Close())
	}
	return nil
}

// Handler answers requests that name address, or a loopback one, as their host.
func (s *Server) Handler(address string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /-/reload", s.lastReload)
	mux.HandleFunc("POST /-/reload", s.reload)
	return guard(address, mux)
}
