package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/pipeline"
)

func (c *cli) consumersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consumers",
		Short: "Look at the durable consumers of the pipelines, remove what is left of one",
		Long: `Every pipeline has a durable consumer on each stream that it reads: its position. One
that is left of a removed pipeline is an orphan; it keeps its unread messages from
being purged until it is removed.`,
		Args: subcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the consumers; orphans are marked",
		Args: positional(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.listConsumers(cmd.Context()) },
	}
	var yes bool
	var stream string
	rm := &cobra.Command{
		Use: "rm CONSUMER", Short: "Remove an orphan: its position is lost",
		Args: positional(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.removeConsumers(cmd.Context(), args[0], stream, yes)
		},
	}
	rm.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	rm.Flags().StringVar(&stream, "stream", "", "only that on one stream (`NAME`)")
	cmd.AddCommand(list, rm)
	return cmd
}

// durables lists the consumers and which of them somebody uses.
func (c *cli) durables(ctx context.Context) (*nats.Conn, jetstream.JetStream, []pipeline.Durable, error) {
	nc, err := c.connect(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	all, err := c.statuses(ctx, nc)
	if err == nil {
		var js jetstream.JetStream
		if js, err = jetstream.New(nc); err == nil {
			var found []pipeline.Durable
			if found, err = pipeline.Durables(ctx, js, known(all)); err == nil {
				return nc, js, found, nil
			}
		}
	}
	nc.Close()
	return nil, nil, nil, err
}

func (c *cli) listConsumers(ctx context.Context) error {
	nc, _, found, err := c.durables(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	if c.json() {
		return c.printJSON(append([]pipeline.Durable{}, found...))
	}
	rows := [][]string{{"CONSUMER", "STREAM", "PENDING", "UNACKED", "ACK FLOOR", ""}}
	for _, d := range found {
		mark := ""
		if d.Orphan {
			mark = "orphan"
		}
		rows = append(rows, []string{d.Name, d.Stream, strconv.FormatUint(d.Pending, 10), strconv.Itoa(d.Unacked), strconv.FormatUint(d.Floor, 10), mark})
	}
	return table(c.stdout, rows)
}

func (c *cli) removeConsumers(ctx context.Context, name, stream string, yes bool) error {
	nc, js, found, err := c.durables(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	var chosen []pipeline.Durable
	for _, d := range found {
		if (d.Name == name || d.Pipeline == name) && (stream == "" || d.Stream == stream) {
			chosen = append(chosen, d)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("remove consumer %s: there is none of a pipeline with that name; mqrun consumers ls lists them", name)
	}
	lost := uint64(0)
	for _, d := range chosen {
		if !d.Orphan {
			return fmt.Errorf("remove consumer %s: pipeline %s uses it; take the pipeline out of the configuration first", d.Name, d.Pipeline)
		}
		lost += d.Pending + uint64(d.Unacked)
	}
	if err := c.agree(fmt.Sprintf("remove %s with %s not handled", plural(len(chosen), "consumer"), plural(int(lost), "message")), yes); err != nil {
		return err
	}
	for _, d := range chosen {
		if err := pipeline.RemoveDurable(ctx, js, d); err != nil {
			return err
		}
	}
	if !c.quiet {
		fmt.Fprintf(c.stderr, "removed %s\n", plural(len(chosen), "consumer"))
	}
	return nil
}

// agree asks at a terminal, and needs -y elsewhere.
func (c *cli) agree(what string, yes bool) error {
	if yes {
		return nil
	}
	in, ok := c.stdin.(*os.File)
	if !ok || !terminal(in) || !terminal(c.stderr) {
		return usagef("%s: nobody can be asked here; add -y", what)
	}
	fmt.Fprintf(c.stderr, "%s? [y/N] ", what)
	text, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || !strings.EqualFold(strings.TrimSpace(text), "y") {
		return errors.New("nothing was done")
	}
	return nil
}
