package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/subject"
)

type pubOptions struct {
	subject, data, file, id string
	given                   bool // data was
	lines                   bool
	headers                 []string
	timeout                 time.Duration
}

func (c *cli) pubCommand() *cobra.Command {
	var o pubOptions
	cmd := &cobra.Command{
		Use:   "pub SUBJECT [DATA|-]",
		Short: "Publish a message, or every line of a file",
		Long: `Publishes DATA, or what comes on stdin, as one message; with --file every line of
a file, with --lines every line of stdin. Empty lines are skipped. It ends when
the server has confirmed every message, and repeats those that it lost the
connection over; each has an id, so nothing is stored twice.

The id of a line is NAME:LINE of its file, so publishing a file again within
2 minutes stores nothing twice either. --id names a message; with lines it
stands in for the file's name.`,
		Example: `  mqrun pub ingest.quakes '{"id":"a1"}' -H Source:manual
  mqrun pub ingest.quakes --file quakes.ndjson
  tail -f quakes.ndjson | mqrun pub ingest.quakes --lines`,
		Args: positional(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.subject = args[0]
			if o.given = len(args) == 2 && args[1] != "-"; o.given {
				o.data = args[1]
			}
			return c.pub(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "publish every line of `FILE`")
	f.BoolVar(&o.lines, "lines", false, "publish every line of stdin")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "add a header; may be repeated (`NAME:VALUE`)")
	f.StringVar(&o.id, "id", "", "Nats-Msg-Id of the message; lines get `ID`:LINE")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long a message may go without confirmation (`duration`)")
	return cmd
}

// check finds what is wrong before anything is sent.
func (o pubOptions) check() (nats.Header, error) {
	if err := subject.Valid(o.subject); err != nil {
		return nil, usagef("%w; publish to one subject, as in ingest.quakes", err)
	}
	switch {
	case subject.Reserved(o.subject):
		return nil, usagef("subject %q is reserved ($*, _INBOX.>, mqrun.>); publish to another one", o.subject)
	case o.file != "" && (o.given || o.lines), o.lines && o.given:
		return nil, usagef("give one of DATA, --file and --lines")
	case o.timeout <= 0:
		return nil, usagef("--timeout is %s; it takes a duration such as 30s", o.timeout)
	}
	h := nats.Header{}
	for _, text := range o.headers {
		name, value, ok := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok || !token(name):
			return nil, usagef("header %q is not NAME:VALUE; a name is letters, digits and -", text)
		case strings.ContainsAny(value, "\r\n"):
			return nil, usagef("header %s has a line break in its value", name)
		case strings.EqualFold(name, nats.MsgIdHdr):
			return nil, usagef("header %s: use --id", name)
		case len(name) > 6 && strings.EqualFold(name[:6], "Mqrun-"):
			return nil, usagef("header %s: Mqrun-* headers are mqrun's own", name)
		}
		h[name] = append(h[name], value)
	}
	return h, nil
}

// token is what the client library takes as a header's name; others it would
// drop without a word.
func token(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func (c *cli) pub(ctx context.Context, o pubOptions) error {
	header, err := o.check()
	if err != nil {
		return err
	}
	in, err := o.open(c.stdin)
	if err != nil {
		return err
	}
	defer in.Close()
	nc, err := c.connect(ctx, reconnect)
	if err != nil {
		return err
	}
	defer nc.Close()
	p, err := newPublisher(ctx, nc, o.subject, header, o.timeout)
	if err != nil {
		return err
	}
	messages := make(chan message)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go o.read(ctx, in, p.limit, messages)
	err = p.publish(ctx, messages)
	if more := c.printPublished(p, err); more != nil {
		return more
	}
	return err
}

// open is where the messages come from. A terminal or pipe is not closed.
func (o pubOptions) open(stdin io.Reader) (io.ReadCloser, error) {
	switch {
	case o.given:
		return io.NopCloser(strings.NewReader(o.data)), nil
	case o.file == "":
		return io.NopCloser(stdin), nil
	}
	f, err := os.Open(o.file)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return f, nil
}

// read sends what in holds to out and closes it. Of something that is larger
// than limit only the size goes on.
func (o pubOptions) read(ctx context.Context, in io.Reader, limit int, out chan<- message) {
	defer close(out)
	send := func(m message) bool {
		select {
		case out <- m:
			return m.err == nil
		case <-ctx.Done():
			return false
		}
	}
	r := bufio.NewReaderSize(in, 64<<10)
	if o.file == "" && !o.lines {
		m := message{id: o.id}
		if m.id == "" {
			m.id = rand.Text()
		}
		m.data, m.size, m.err = readUpTo(r, limit, false)
		if errors.Is(m.err, io.EOF) {
			m.err = nil
		}
		send(m)
		return
	}
	name := o.id
	switch {
	case name != "":
	case o.file != "":
		name = filepath.Base(o.file)
	default:
		name = "stdin-" + rand.Text()
	}
	for n := 1; ; n++ {
		m := message{line: n, id: name + ":" + strconv.Itoa(n)}
		m.data, m.size, m.err = readUpTo(r, limit, true)
		last := errors.Is(m.err, io.EOF)
		if last {
			m.err = nil
		}
		if (m.size > 0 || m.err != nil) && !send(m) || last {
			return
		}
	}
}

// readUpTo reads a line without its end, or all there is. It keeps one byte
// more than limit and counts the rest.
func readUpTo(r *bufio.Reader, limit int, line bool) (data []byte, size int, err error) {
	for {
		part, err := r.ReadSlice('\n')
		end := line && err == nil
		if end {
			part = part[:len(part)-1]
		}
		size += len(part)
		data = append(data, part[:min(len(part), max(0, limit+1-len(data)))]...)
		if end && size > 0 && size == len(data) && data[size-1] == '\r' {
			data, size = data[:size-1], size-1
		}
		if end || err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return data, size, err
		}
	}
}

type published struct {
	Subject    string `json:"subject"`
	Stream     string `json:"stream"`
	Stored     int    `json:"stored"`
	Duplicates int    `json:"duplicates"` // were stored before
	Repeated   int    `json:"repeated"`   // sent more than once, because no answer came
	First      uint64 `json:"first_sequence,omitempty"`
	Last       uint64 `json:"last_sequence,omitempty"`
}

// printPublished says how far it came, also when it failed later.
func (c *cli) printPublished(p *publisher, failed error) error {
	r := p.result
	switch {
	case c.json():
		return c.printJSON(r)
	case c.quiet, failed != nil && r.Stored+r.Duplicates == 0:
		return nil
	}
	text := fmt.Sprintf("stored %s on %s in stream %s", plural(r.Stored, "message"), r.Subject, r.Stream)
	if r.Duplicates > 0 {
		text += fmt.Sprintf("; %s already there", plural(r.Duplicates, "message"))
	}
	if _, err := fmt.Fprintln(c.stdout, text); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
