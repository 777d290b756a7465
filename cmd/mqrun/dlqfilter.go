package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/subject"
)

// selection is which dead letters a command is for.
type selection struct {
	pipeline, reason, plugin, subject string
	since, until                      string
	all, yes                          bool
}

func (s *selection) flags(f *pflag.FlagSet) {
	f.StringVar(&s.pipeline, "pipeline", "", "those of one pipeline (`name`)")
	f.StringVar(&s.reason, "reason", "", "those with one reason, such as retry or trap (`word`)")
	f.StringVar(&s.plugin, "plugin", "", "those that a module failed, by the beginning of its sha256 (`digest`)")
	f.StringVar(&s.subject, "subject", "", "those whose message had a subject that matches (`filter`)")
	f.StringVar(&s.since, "since", "", "those that are younger than a duration, or came at or after a time (`2h or 2026-01-31T12:00:00Z`)")
	f.StringVar(&s.until, "until", "", "those that are older, or came before (as --since)")
	f.BoolVar(&s.all, "all", false, "all of them")
	f.BoolVarP(&s.yes, "yes", "y", false, "do not ask, however many there are")
}

// filter refuses to mean everything by mistake.
func (s *selection) filter(args []string, now time.Time) (pipeline.Filter, error) {
	f := pipeline.Filter{Pipeline: s.pipeline, Reason: s.reason, Digest: strings.TrimPrefix(s.plugin, "sha256:"), Subject: s.subject}
	for _, a := range args {
		seq, err := strconv.ParseUint(a, 10, 64)
		if err != nil || seq == 0 {
			return f, usagef("%q is no sequence; take one from the SEQ column of mqrun dlq ls", a)
		}
		f.Sequences = append(f.Sequences, seq)
	}
	if s.subject != "" && subject.ValidFilter(s.subject) != nil {
		return f, usagef("--subject: %q is no subject", s.subject)
	}
	var err error
	if f.Since, err = when("--since", s.since, now); err != nil {
		return f, err
	}
	if f.Until, err = when("--until", s.until, now); err != nil {
		return f, err
	}
	switch empty := f.String() == ""; {
	case empty && !s.all:
		return f, usagef("say which: sequences, --pipeline, --reason, --plugin, --subject, --since, --until, or --all")
	case !empty && s.all:
		return f, usagef("--all does not go with %s", f)
	}
	return f, nil
}

// when reads a time, or how long ago it was.
func when(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("%s: %q is neither a duration such as 2h nor a time such as 2026-01-31T12:00:00Z", flag, text)
	}
	return t, nil
}

// selected connects and lists what the selection means. The caller closes the
// connection.
func (c *cli) selected(ctx context.Context, s *selection, args []string) (*nats.Conn, *pipeline.Letters, []pipeline.Letter, error) {
	f, err := s.filter(args, time.Now())
	if err != nil {
		return nil, nil, nil, err
	}
	nc, err := c.connect(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	letters, err := pipeline.OpenLetters(ctx, nc, whoami())
	if err == nil {
		var found []pipeline.Letter
		if found, err = letters.Find(ctx, f); err == nil {
			return nc, letters, found, nil
		}
	}
	nc.Close()
	return nil, nil, nil, err
}

// confirm asks before more than one dead letter is touched.
func (c *cli) confirm(s *selection, what string, n int) error {
	return c.agree(fmt.Sprintf("%s %d dead letters", what, n), n <= 1 || s.yes)
}

// whoami is for the audit lines.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (c *cli) dlqPurgeCommand() *cobra.Command {
	var s selection
	var dry bool
	cmd := &cobra.Command{
		Use:   "purge [SEQ...]",
		Short: "Remove dead letters for ever",
		Long: `Removes the dead letters that are named, or that all given filters select. There
is no way back; each leaves a line in mqrun dlq log.`,
		Example: `  mqrun dlq purge 17 18
  mqrun dlq purge --pipeline classify --until 720h -y`,
		Args: positional(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error { return c.purgeLetters(cmd.Context(), &s, args, dry) },
	}
	s.flags(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	return cmd
}

func (c *cli) purgeLetters(ctx context.Context, s *selection, args []string, dry bool) error {
	nc, letters, found, err := c.selected(ctx, s, args)
	if err != nil {
		return err
	}
	defer nc.Close()
	n := len(found)
	if !dry {
		if err := c.confirm(s, "remove", n); err != nil {
			return err
		}
		for i, d := range found {
			if err := letters.Purge(ctx, d); err != nil {
				return fmt.Errorf("%w; %d of %d are removed", err, i, n)
			}
		}
	}
	if c.json() {
		return c.printJSON(struct {
			DryRun  bool              `json:"dry_run"`
			Letters []pipeline.Letter `json:"letters"`
		}{dry, append([]pipeline.Letter{}, found...)})
	}
	if dry && n > 0 {
		rows := [][]string{{"SEQ", "AGE", "PIPELINE", "STEP", "REASON", "SUBJECT"}}
		for _, d := range found {
			rows = append(rows, []string{strconv.FormatUint(d.Sequence, 10), age(time.Since(d.Time)), d.Pipeline, d.Step, d.Reason, printable(d.Subject)})
		}
		if err := table(c.stdout, rows); err != nil {
			return err
		}
	}
	if c.quiet {
		return nil
	}
	word := "removed"
	if dry {
		word = "would remove"
	}
	fmt.Fprintf(c.stderr, "%s %s\n", word, plural(n, "dead letter"))
	return nil
}
