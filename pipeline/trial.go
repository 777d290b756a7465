package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
)

// Trial runs dead letters through their pipeline with another module in one
// step, and publishes nothing: would they pass now? It has no buckets: a
// plugin that asks for one is told that nothing answers.
type Trial struct {
	Module string // name@sha256:12 of the one on trial

	stage   stage
	plugins set
}

// Outcome is what came of one dead letter in a trial.
type Outcome struct {
	Letter  Letter `json:"letter"`
	Passes  bool   `json:"passes"`
	Verdict string `json:"verdict"` // ok, filtered, or the reason that it fails for
	Error   string `json:"error,omitempty"`
	Step    string `json:"step,omitempty"` // that it fails in
	Outputs int    `json:"outputs"`
}

// OpenTrial loads the plugins of a pipeline, with the settings of cfg, and the
// module in the place of the step's own. Without a step it must be clear which
// one is meant.
func OpenTrial(ctx context.Context, rt *host.Runtime, cfg *config.Config, pipeline, step, module string) (*Trial, error) {
	wrap := func(err error) error { return fmt.Errorf("try %s in pipeline %s: %w", module, pipeline, err) }
	p := cfg.Pipelines[pipeline]
	switch {
	case p == nil:
		return nil, wrap(errors.New("the configuration has no such pipeline"))
	case step == "" && len(p.Steps) == 1:
		step = p.Steps[0]
	case !slices.Contains(p.Steps, step):
		return nil, wrap(fmt.Errorf("step %q is none of %s", step, strings.Join(p.Steps, ", ")))
	}
	wasm, err := os.ReadFile(module)
	if err != nil {
		return nil, wrap(err)
	}
	own := cfg.Plugins[step]
	if int64(len(wasm)) > own.Limits.Module {
		return nil, wrap(fmt.Errorf("it has %d bytes; plugins.%s.limits.module allows %d", len(wasm), step, own.Limits.Module))
	}
	t := &Trial{plugins: set{}}
	for _, name := range p.Steps {
		if t.plugins[name] != nil {
			continue
		}
		c := cfg.Plugins[name]
		var pl *plugin
		if name == step {
			other := *c
			other.Module = module
			pl, err = loadModule(ctx, rt, nil, &other, 1, wasm)
			if err == nil {
				t.Module = pl.label(name)
			}
		} else {
			pl, err = loadSandboxed(ctx, rt, nil, c, 1, nil)
		}
		if err != nil {
			return nil, wrap(errors.Join(err, t.Close(ctx)))
		}
		t.plugins[name] = pl
	}
	t.stage = newStage(math.MaxInt64, chainFor(p, 0, t.plugins, []string{"dlq.>"}))
	return t, nil
}

// Close closes the plugins.
func (t *Trial) Close(ctx context.Context) error { return closePlugins(ctx, t.plugins, nil) }

// Run takes a restored dead letter through the steps, as its first attempt. One
// run at a time. The error is of the host; a message that fails is an Outcome.
func (t *Trial) Run(ctx context.Context, d Letter) (Outcome, error) {
	s := &slot{
		src: &source{stream: d.Stream}, subject: d.Subject, attempt: 1,
		msg:  &nats.Msg{Subject: d.Subject, Header: d.Header, Data: d.Data},
		info: mq.AckInfo{Stream: d.Stream, Sequence: d.Original, Time: d.Time},
	}
	w, v, err := t.stage.walk(ctx, s)
	if err != nil {
		return Outcome{}, fmt.Errorf("try dead letter %d: %w", d.Sequence, err)
	}
	defer t.stage.done(s)
	d.Header, d.Data = nil, nil
	o := Outcome{Letter: d, Passes: v.action == actAck, Verdict: v.reason, Error: w.text, Outputs: len(w.outs)}
	switch {
	case v.filtered:
		o.Verdict = "filtered"
	case o.Passes:
		o.Verdict = "ok"
	default:
		o.Step = w.step.name
	}
	return o, nil
}

// Tried writes down that a dead letter was run through another module.
func (l *Letters) Tried(ctx context.Context, t *Trial, o Outcome) error {
	return l.audit(ctx, AuditLine{Action: "try", Letter: o.Letter, Module: t.Module, Verdict: o.Verdict})
}
