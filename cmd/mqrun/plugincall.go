package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/subject"
)

// defaultAttempts is retry.attempts where nothing else is written.
const defaultAttempts = 12

type callOptions struct {
	file, plugin, subject, from string
	data                        []byte
	headers, config             []string
	attempt, count              int
}

// called is what one message, or the last of many, came to.
type called struct {
	Verdict string         `json:"verdict"` // ok, retry, reject, drop, or why the call failed
	Reason  string         `json:"reason,omitempty"`
	Retry   string         `json:"retry_after,omitempty"`
	Outputs []calledOutput `json:"outputs"`
	Log     []string       `json:"log"`
	Calls   int            `json:"calls"`
	First   time.Duration  `json:"first_ns"`  // of the first call, on a fresh instance
	Median  time.Duration  `json:"median_ns"` // of all of them
	Memory  int64          `json:"memory"`
	Fuel    int64          `json:"fuel"` // of the last call, as limits.fuel counts; 0 when it failed
	failed  bool
}

type calledOutput struct {
	Subject string      `json:"subject"` // "" = to, or the next step
	Headers nats.Header `json:"headers,omitempty"`
	Data    []byte      `json:"data"`
}

func (c *cli) pluginCallCommand() *cobra.Command {
	o := callOptions{}
	cmd := &cobra.Command{
		Use:   "call FILE [DATA|-]",
		Short: "Run one message through a module, without a broker",
		Long: `Runs DATA, the file of --from, or what comes on stdin through a module, in the
sandbox that run would use, and prints the verdict, the outputs, the log, the time
and the memory. With --plugin it has that plugin's settings of the configuration.
Nothing is published, and there are no buckets. Exits with 1 unless the verdict is
OK or DROP.`,
		Example: `  mqrun plugin call plugins/bin/parse.wasm '{"id":"a1"}'
  mqrun plugin call parse.wasm --from quake.json --count 1000`,
		Args: positional(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			if err := o.read(c.stdin, args[1:]); err != nil {
				return err
			}
			return c.pluginCall(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "take the payload from `FILE`")
	f.StringVar(&o.plugin, "plugin", "", "use the settings of plugin `NAME` in the configuration")
	f.StringVar(&o.subject, "subject", "ingest.test", "the message's `SUBJECT`")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "add a header; may be repeated (`NAME:VALUE`)")
	f.StringArrayVar(&o.config, "config-value", nil, "set one value of the plugin's config; may be repeated (`KEY=VALUE`)")
	f.IntVar(&o.attempt, "attempt", 1, "which attempt the guest is told that this is (`N`)")
	f.IntVar(&o.count, "count", 1, "call it `N` times on one instance, for the time")
	return cmd
}

func (o *callOptions) read(stdin io.Reader, args []string) (err error) {
	given := len(args) == 1 && args[0] != "-"
	switch {
	case o.from != "" && len(args) == 1:
		return usagef("give one of DATA and --from")
	case o.attempt < 1:
		return usagef("--attempt is %d; the first one is 1", o.attempt)
	case o.count < 1:
		return usagef("--count is %d; it takes 1 or more", o.count)
	}
	if err := subject.Valid(o.subject); err != nil {
		return usagef("--subject: %w", err)
	}
	switch {
	case o.from != "":
		o.data, err = os.ReadFile(o.from)
	case given:
		o.data = []byte(args[0])
	default:
		o.data, err = io.ReadAll(stdin)
	}
	if err != nil {
		return fmt.Errorf("read the payload: %w", err)
	}
	return nil
}

// settings are those of the plugin, or the defaults.
func (c *cli) callSettings(o callOptions) (host.Settings, error) {
	s := host.Settings{Name: moduleName(o.file), Limits: host.DefaultLimits(), Config: map[string]string{}, ConfigJSON: []byte("{}")}
	if o.plugin != "" {
		cfg, err := c.load(c.configs)
		if err != nil {
			return s, err
		}
		p, ok := cfg.Plugins[o.plugin]
		if !ok {
			return s, usagef("the configuration has no plugin %q; it has %s", o.plugin, strings.Join(sortedNames(cfg.Plugins), ", "))
		}
		s = pipeline.Settings(p)
	}
	s.File, s.Workers = o.file, 1
	for _, text := range o.config {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return s, usagef("--config-value %q is not KEY=VALUE", text)
		}
		s.Config[k] = v
	}
	if len(o.config) > 0 {
		var err error
		if s.ConfigJSON, err = json.Marshal(s.Config); err != nil {
			return s, err
		}
	}
	if s.Limits.Fuel == 0 && !s.Trusted {
		s.Limits.Fuel = math.MaxInt64 // counted
	}
	return s, nil
}

func (c *cli) pluginCall(ctx context.Context, o callOptions) (err error) {
	header, err := parseHeaders(o.headers)
	if err != nil {
		return err
	}
	s, err := c.callSettings(o)
	if err != nil {
		return err
	}
	wasm, err := readModule(o.file)
	if err != nil {
		return err
	}
	rt, err := host.New(ctx, host.Options{Logger: slog.New(slog.DiscardHandler), CacheDir: userCache()})
	if err != nil {
		return err
	}
	defer func() { err = also(err, rt.Close(context.WithoutCancel(ctx))) }()
	p, err := rt.Load(ctx, wasm, s)
	if err != nil {
		return err
	}
	defer func() { err = also(err, p.Close(context.WithoutCancel(ctx))) }()
	m := &host.Message{
		Subject: o.subject, Stream: "TEST", Pipeline: s.Name, To: "test.out", Last: true, Data: o.data, Header: header,
		Sequence: 1, Attempt: o.attempt, MaxAttempts: max(o.attempt, defaultAttempts), Time: time.Now(),
	}
	r, err := call(ctx, p, m, o.count)
	if err != nil {
		return err
	}
	if err := c.printCalled(r); err != nil {
		return err
	}
	if r.failed {
		return &exitError{exitFailed, errors.New("")} // the verdict is the message
	}
	return nil
}

// call runs the message count times, or until it fails.
func call(ctx context.Context, p *host.Plugin, m *host.Message, count int) (called, error) {
	var res host.Result
	times := make([]time.Duration, 0, min(count, 1<<20))
	for range count {
		began := time.Now()
		err := p.Handle(ctx, m, &res)
		times = append(times, time.Since(began))
		if ce, ok := errors.AsType[*host.CallError](err); ok {
			r := calledOf(&res, times)
			r.Verdict, r.Reason, r.failed = ce.Reason, ce.Text, true
			return r, nil
		}
		if err != nil {
			return called{}, err
		}
		if res.Code != host.OK && res.Code != host.Drop {
			break
		}
	}
	return calledOf(&res, times), nil
}

func calledOf(res *host.Result, times []time.Duration) called {
	r := called{
		Reason: res.Reason, Outputs: []calledOutput{}, Log: []string{}, Calls: len(times), First: times[0],
		Memory: res.Memory, Fuel: res.Fuel,
	}
	switch res.Code {
	case host.OK:
		r.Verdict = "ok"
		if res.EmitFailed != "" {
			r.Verdict, r.Reason, r.failed = "retry", res.EmitError, true
		}
	case host.Retry:
		r.Verdict, r.failed = "retry", true
		if res.RetrySet {
			r.Retry = res.RetryAfter.String()
		}
	case host.Reject:
		r.Verdict, r.failed = "reject", true
	case host.Drop:
		r.Verdict = "drop"
	default:
		r.Verdict, r.failed = fmt.Sprintf("code %d", res.Code), true
	}
	for _, out := range res.Outputs {
		co := calledOutput{Subject: out.Subject, Data: bytes.Clone(out.Data)}
		for _, f := range out.Header {
			if co.Headers == nil {
				co.Headers = nats.Header{}
			}
			co.Headers[f.Name] = append(co.Headers[f.Name], f.Value)
		}
		r.Outputs = append(r.Outputs, co)
	}
	if text := strings.TrimSpace(string(res.Log)); text != "" {
		r.Log = strings.Split(text, "\n")
	}
	r.Median = median(times)
	return r
}
