package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/pipeline"
)

type tried struct {
	Module   string             `json:"module"`
	Passes   int                `json:"passes"`
	Outcomes []pipeline.Outcome `json:"outcomes"`
}

// try runs dead letters through another module, here.
func (c *cli) try(ctx context.Context, letters *pipeline.Letters, found []pipeline.Letter, o replayOptions) (err error) {
	cfg, err := c.load(c.configs)
	if err != nil {
		return err
	}
	rt, err := host.New(ctx, host.Options{Logger: c.logger()})
	if err != nil {
		return err
	}
	defer func() { err = also(err, rt.Close(context.WithoutCancel(ctx))) }()
	trials := map[[2]string]*pipeline.Trial{} // by pipeline and step
	defer func() {
		for _, t := range trials {
			err = also(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	r := tried{Module: o.module, Outcomes: []pipeline.Outcome{}}
	for _, d := range found {
		key := [2]string{d.Pipeline, d.Step}
		if o.step != "" {
			key[1] = o.step
		}
		t := trials[key]
		if t == nil {
			if t, err = pipeline.OpenTrial(ctx, rt, cfg, key[0], key[1], o.module); err != nil {
				return err
			}
			trials[key] = t
		}
		m, err := letters.Restore(ctx, d.Sequence)
		if err != nil {
			return err
		}
		out, err := t.Run(ctx, m)
		if err != nil {
			return err
		}
		if err := letters.Tried(ctx, t, out); err != nil {
			return err
		}
		if out.Passes {
			r.Passes++
		}
		r.Outcomes = append(r.Outcomes, out)
	}
	return c.printTried(r)
}

func (c *cli) printTried(r tried) error {
	if c.json() {
		return c.printJSON(r)
	}
	if len(r.Outcomes) > 0 {
		rows := [][]string{{"SEQ", "PIPELINE", "BEFORE", "NOW", "OUTPUTS", "ERROR"}}
		for _, o := range r.Outcomes {
			rows = append(rows, []string{strconv.FormatUint(o.Letter.Sequence, 10), o.Letter.Pipeline, o.Letter.Reason, o.Verdict, strconv.Itoa(o.Outputs), printable(o.Error)})
		}
		if err := table(c.stdout, rows); err != nil {
			return err
		}
	}
	if !c.quiet {
		fmt.Fprintf(c.stderr, "%d of %s would pass with %s; nothing was sent\n", r.Passes, plural(len(r.Outcomes), "dead letter"), r.Module)
	}
	return nil
}
