package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/pipeline"
)

type replayOptions struct {
	selection
	dry, edit          bool
	with, module, step string
	rate               float64
}

func (c *cli) dlqReplayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay [SEQ...]",
		Short: "Give dead letters back to the pipeline that failed",
		Long: `Publishes the original messages of the dead letters that are named, or that all
given filters select, to the pipeline that gave them up, and to no other; it
sees them under their original subject. A dead letter is removed once the server
has confirmed the message. On a stream that mqrun did not make, the message goes
to its original subject, with a warning that names who else reads it.

--try runs the dead letters through another module instead, here and now, and
prints which would pass: nothing is published or removed, and plugins get no
buckets. Every replay, edit and trial leaves a line in mqrun dlq log.`,
		Example: `  mqrun dlq replay 17
  mqrun dlq replay --pipeline classify --reason timeout --dry-run
  mqrun dlq replay --pipeline classify --rate 50 -y
  mqrun dlq replay 17 --edit
  mqrun dlq replay --pipeline classify --try ./classify-fixed.wasm`,
		Args: positional(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return c.replay(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	o.flags(f)
	f.BoolVar(&o.dry, "dry-run", false, "only show what would be sent where")
	f.Float64Var(&o.rate, "rate", 0, "send at most `N` a second; 0 is as fast as it goes")
	f.BoolVar(&o.edit, "edit", false, "change the payload in $VISUAL or $EDITOR first; for one dead letter")
	f.StringVar(&o.with, "with", "", "send the content of `FILE` as the payload; for one dead letter")
	f.StringVar(&o.module, "try", "", "run the dead letters through `MODULE` in the place of the step that failed, and send nothing")
	f.StringVar(&o.step, "step", "", "with --try: the step to replace (default: the one that failed)")
	return cmd
}

func (o replayOptions) check() error {
	n := 0
	for _, set := range []bool{o.edit, o.with != "", o.module != ""} {
		if set {
			n++
		}
	}
	switch {
	case n > 1:
		return usagef("give one of --edit, --with and --try")
	case o.rate < 0:
		return usagef("--rate is %v; it takes a number above 0", o.rate)
	case o.step != "" && o.module == "":
		return usagef("--step goes with --try")
	case o.dry && (o.edit || o.module != ""):
		return usagef("--dry-run goes with neither --edit nor --try")
	}
	return nil
}

type replayed struct {
	DryRun  bool               `json:"dry_run"`
	Replays []*pipeline.Replay `json:"replays"`
	Failed  []failed           `json:"failed"`
}

type failed struct {
	Sequence uint64 `json:"sequence"`
	Error    string `json:"error"`
}

func (c *cli) replay(ctx context.Context, o replayOptions, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	nc, letters, found, err := c.selected(ctx, &o.selection, args)
	if err != nil {
		return err
	}
	defer nc.Close()
	if o.module != "" {
		return c.try(ctx, letters, found, o)
	}
	if (o.edit || o.with != "") && len(found) != 1 {
		return usagef("an edit is for one dead letter; %d are selected", len(found))
	}
	if !o.dry {
		if err := c.confirm(&o.selection, "replay", len(found)); err != nil {
			return err
		}
	}
	r := replayed{DryRun: o.dry, Replays: []*pipeline.Replay{}, Failed: []failed{}}
	pace := newPace(o.rate)
	defer pace.stop()
	warned := map[string]bool{}
	for _, d := range found {
		p, err := c.replayOne(ctx, letters, d, o, pace, warned)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %d of %d are replayed", len(r.Replays), len(found))
		}
		if err != nil {
			r.Failed = append(r.Failed, failed{d.Sequence, err.Error()})
			continue
		}
		r.Replays = append(r.Replays, p)
	}
	return c.printReplayed(r)
}

func (c *cli) replayOne(ctx context.Context, letters *pipeline.Letters, d pipeline.Letter, o replayOptions, pace pace, warned map[string]bool) (*pipeline.Replay, error) {
	p, err := letters.Prepare(ctx, d.Sequence)
	if err != nil {
		return nil, err
	}
	if p.Warning != "" && !warned[p.Warning] && !c.quiet {
		warned[p.Warning] = true
		fmt.Fprintf(c.stderr, "warning: dead letter %d: %s\n", d.Sequence, printable(p.Warning))
	}
	if o.edit || o.with != "" {
		data, err := c.edited(ctx, p.Payload(), o.with)
		if err != nil {
			return nil, err
		}
		p.Edit(data)
	}
	if o.dry {
		return p, nil
	}
	if err := pace.wait(ctx); err != nil {
		return nil, err
	}
	return p, letters.Send(ctx, p)
}

// edited is the new payload, from a file or from the editor.
func (c *cli) edited(ctx context.Context, old []byte, file string) ([]byte, error) {
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read payload: %w", err)
		}
		return data, nil
	}
	editor := os.Getenv("VISUAL")
	if editor == "" {
		editor = os.Getenv("EDITOR")
	}
	if editor == "" {
		return nil, errors.New("neither $VISUAL nor $EDITOR is set; set one, or use --with FILE")
	}
	name := "mqrun-*.txt"
	if json.Valid(old) {
		name = "mqrun-*.json"
	}
	f, err := os.CreateTemp("", name)
	if err != nil {
		return nil, fmt.Errorf("edit payload: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(old)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("edit payload: %w", err)
	}
	// The variable may hold arguments, as it does for other programs.
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", f.Name())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stderr, c.stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("edit payload with %s: %w", editor, err)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, fmt.Errorf("edit payload: %w", err)
	}
	if bytes.Equal(data, old) {
		return nil, errors.New("the payload was not changed, so it is not replayed; without --edit it is sent as it is")
	}
	return data, nil
}

// pace lets something happen so many times a second.
type pace struct{ t *time.Ticker }

func newPace(rate float64) pace {
	if rate <= 0 {
		return pace{}
	}
	return pace{time.NewTicker(max(time.Duration(float64(time.Second)/rate), 1))}
}

func (p pace) wait(ctx context.Context) error {
	if p.t == nil {
		return ctx.Err()
	}
	select {
	case <-p.t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p pace) stop() {
	if p.t != nil {
		p.t.Stop()
	}
}

const mostShown = 20 // failures; a thousand alike help nobody

func (c *cli) printReplayed(r replayed) error {
	if c.json() {
		if err := c.printJSON(r); err != nil {
			return err
		}
	} else if r.DryRun && len(r.Replays) > 0 {
		rows := [][]string{{"SEQ", "PIPELINE", "REASON", "SIZE", "TO", "SUBJECT"}}
		for _, p := range r.Replays {
			rows = append(rows, []string{strconv.FormatUint(p.Letter.Sequence, 10), p.Letter.Pipeline, p.Letter.Reason, size(int64(p.Size)), printable(p.Subject), printable(p.Letter.Subject)})
		}
		if err := table(c.stdout, rows); err != nil {
			return err
		}
	}
	word := "replayed"
	if r.DryRun {
		word = "would replay"
	}
	if !c.json() && !c.quiet {
		fmt.Fprintf(c.stderr, "%s %s\n", word, plural(len(r.Replays), "dead letter"))
	}
	if len(r.Failed) == 0 {
		return nil
	}
	for _, f := range r.Failed[:min(len(r.Failed), mostShown)] {
		fmt.Fprintln(c.stderr, printable(f.Error))
	}
	return fmt.Errorf("%s not replayed; they stay where they are", plural(len(r.Failed), "dead letter"))
}
