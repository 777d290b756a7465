package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/web"
)

// apiPrefix is where a running mqrun answers our own commands: requests over
// NATS, because that is how they reach it anyway, with or without a web
// listener, here or in a cluster. Guests cannot publish below mqrun.>.
const apiPrefix = "mqrun.api."

const (
	apiWait  = 5 * time.Second        // for the first answer
	apiQuiet = 250 * time.Millisecond // after the last one, when there may be several processes
	apiWork  = 10 * time.Second

	reloadWait = 10 * time.Minute // compiling and draining take their time
)

// answer is what one process says.
type answer struct {
	Process string          `json:"process"` // host:pid
	Error   string          `json:"error,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// endpoint makes the data of an answer from that of a request.
type endpoint func(ctx context.Context, request []byte) (any, error)

// serveAPI answers until the returned function is called.
func serveAPI(q *mq.EmbeddedNATS, endpoints map[string]endpoint, log *slog.Logger) (stop func(), err error) {
	nc, err := q.Connect("mqrun api")
	if err != nil {
		return nil, err
	}
	process := processName()
	for name, f := range endpoints {
		_, err := nc.Subscribe(apiPrefix+name, func(m *nats.Msg) {
			ctx, cancel := context.WithTimeout(context.Background(), apiWork)
			defer cancel()
			a := answer{Process: process}
			v, err := f(ctx, m.Data)
			if err == nil {
				a.Data, err = json.Marshal(v)
			}
			if err != nil {
				a.Error = err.Error()
			}
			body, err := json.Marshal(a)
			if err == nil {
				err = m.Respond(body)
			}
			if err != nil {
				log.Warn("command not answered", "command", name, "error", err)
			}
		})
		if err != nil {
			nc.Close()
			return nil, fmt.Errorf("answer commands: %w", err)
		}
	}
	return nc.Close, nil
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// ask sends a request to every running process and collects the answers. Of a
// server on its own there is one.
func (c *cli) ask(ctx context.Context, nc *nats.Conn, name string, request []byte, first time.Duration) ([]answer, error) {
	wrap := func(err error) error { return fmt.Errorf("ask for %s: %w", name, err) }
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, wrap(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(apiPrefix+name, inbox, request); err != nil {
		return nil, wrap(err)
	}
	var all []answer
	for wait := first; ; wait = apiQuiet {
		next, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(next)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && len(all) > 0:
			return all, nil
		case errors.Is(err, context.DeadlineExceeded) || err == nil && m.Header.Get("Status") == "503" || errors.Is(err, nats.ErrNoResponders):
			return nil, wrap(errors.New("the server is there, but no mqrun run answers; is it still starting?"))
		case err != nil:
			return nil, wrap(err)
		}
		var a answer
		if err := json.Unmarshal(m.Data, &a); err != nil || a.Process == "" {
			continue // a stream that holds everything answers too
		}
		if a.Error != "" {
			return nil, wrap(fmt.Errorf("%s: %s", a.Process, a.Error))
		}
		if all = append(all, a); !c.several {
			return all, nil
		}
	}
}

// processStatus is what a process says of itself.
type processStatus struct {
	Process    string             `json:"process"`
	Version    string             `json:"version"`
	Started    time.Time          `json:"started"`
	Generation uint64             `json:"generation"`
	Reload     web.Reload         `json:"reload"`
	Pipelines  []pipelineStatus   `json:"pipelines"`
	Rollouts   []pipeline.Rollout `json:"rollouts,omitempty"`
}

type pipelineStatus struct {
	pipeline.Status
	Pending *uint64 `json:"pending,omitempty"` // unknown with commit: batch
}

// reloadAnswer is what came of a reload that a command asked for.
type reloadAnswer struct {
	Process  string          `json:"process"`
	Plan     *pipeline.Plan  `json:"plan,omitempty"`     // of one that was applied
	Problems config.Problems `json:"problems,omitempty"` // of one that was refused
	Error    string          `json:"error,omitempty"`
}

// endpoints are what serveAPI answers.
func endpoints(l *live, r *reloader) map[string]endpoint {
	started := time.Now().UTC()
	return map[string]endpoint{
		"status": func(ctx context.Context, _ []byte) (any, error) {
			s := processStatus{Version: builtIn().Mqrun, Started: started, Generation: l.Generation(), Reload: r.Last(), Rollouts: l.Rollouts(), Pipelines: []pipelineStatus{}}
			pending := l.Pending(ctx)
			for _, p := range l.Status() {
				ps := pipelineStatus{Status: p}
				if n, ok := pending[p.Name]; ok {
					ps.Pending = &n
				}
				s.Pipelines = append(s.Pipelines, ps)
			}
			return s, nil
		},
		"reload": func(ctx context.Context, _ []byte) (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadWait)
			defer cancel()
			plan, err := r.ask(ctx, "command")
			a := reloadAnswer{}
			if plan.Generation > 0 {
				a.Plan = &plan
			}
			if ps, refused := errors.AsType[config.Problems](err); refused {
				a.Problems = ps
			} else if err != nil {
				a.Error = err.Error()
			}
			return a, nil
		},
	}
}

// statuses asks all processes.
func (c *cli) statuses(ctx context.Context, nc *nats.Conn) ([]processStatus, error) {
	answers, err := c.ask(ctx, nc, "status", nil, apiWait)
	if err != nil {
		return nil, err
	}
	var all []processStatus
	for _, a := range answers {
		var s processStatus
		if err := json.Unmarshal(a.Data, &s); err != nil {
			return nil, fmt.Errorf("status of %s: %w", a.Process, err)
		}
		s.Process = a.Process
		all = append(all, s)
	}
	return all, nil
}

// known tells which pipelines some process runs.
func known(all []processStatus) func(string) bool {
	names := map[string]bool{}
	for _, s := range all {
		for _, p := range s.Pipelines {
			names[p.Key] = true
		}
	}
	return func(name string) bool { return names[name] }
}
