package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/pipeline"
)

// online is what a server has beside what the configuration wants.
type online struct {
	Server  string            `json:"server"`
	Changes []pipeline.Change `json:"changes"`
}

// refuses is whether run would not start.
func (o *online) refuses() bool {
	return o != nil && slices.ContainsFunc(o.Changes, func(c pipeline.Change) bool { return c.Kind == pipeline.ChangeRefuse })
}

// compare asks the server, and changes nothing there.
func (c *cli) compare(ctx context.Context, cfg *config.Config) (*online, config.Problems, error) {
	nc, err := c.connect(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("validate --online: %w", err)
	}
	defer nc.Close()
	o := &online{Server: "the running mqrun", Changes: []pipeline.Change{}}
	switch {
	case c.server != "":
		o.Server = mq.Redacted(c.server)
	case cfg.NATS.URL != "":
		o.Server = mq.Redacted(cfg.NATS.URL)
	}
	changes, problems, err := pipeline.Compare(ctx, nc, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("validate --online: %s: %w", o.Server, err)
	}
	o.Changes = append(o.Changes, changes...)
	return o, problems, nil
}

// printOnline prints the plan, by what would be done.
func (c *cli) printOnline(o *online) error {
	words := []struct{ kind, word string }{
		{pipeline.ChangeRefuse, "refused"}, {pipeline.ChangeMake, "make"}, {pipeline.ChangeAdd, "add"}, {pipeline.ChangeSet, "set"},
		{pipeline.ChangeDiffer, "leave"}, {pipeline.ChangeUse, "use"},
	}
	var rows [][]string
	for _, w := range words {
		for _, change := range o.Changes {
			if change.Kind == w.kind {
				rows = append(rows, []string{w.word, printable(change.String())})
			}
		}
	}
	if len(rows) > 0 {
		return table(c.stdout, rows)
	}
	if !c.quiet {
		fmt.Fprintf(c.stdout, "%s has all that the configuration wants\n", o.Server)
	}
	return nil
}
