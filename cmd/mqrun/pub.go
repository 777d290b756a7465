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
	subject, data, id string
	given             bool // data was
	files             []string
	lines             bool // of stdin
	headers           []string
	timeout           time.Duration
}

func (c *cli) pubCommand() *cobra.Command {
	var o pubOptions
	cmd := &cobra.Command{
		Use:   "pub SUBJECT [DATA|-]",
		Short: "Publish a message, or every line of a file",
		Long: `Publishes DATA, or what comes on stdin, as one message; with --file every line of
the files, with --lines every line of stdin. Empty lines are skipped. It ends when
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
	f.StringArrayVarP(&o.files, "file", "f", nil, "publish every line of `FILE`; may be repeated")
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
	case len(o.files) > 0 && (o.given || o.lines), o.lines && o.given:
		return nil, usagef("give one of DATA, --file and --lines")
	case o.id != "" && len(o.files) > 1:
		return nil, usagef("--id with several files would give two lines one id")
	case o.timeout <= 0:
		return nil, usagef("--timeout is %s; it takes a duration such as 30s", o.timeout)
	}
	return parseHeaders(o.headers)
}

// parseHeaders reads NAME:VALUE texts.
func parseHeaders(texts []string) (nats.Header, error) {
	h := nats.Header{}
	for _, text := range texts {
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
	sources, err := o.open(c.stdin)
	if err != nil {
		return err
	}
	defer func() {
		for _, src := range sources {
			_ = src.Close()
		}
	}()
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
	go o.read(ctx, sources, p.limit, messages)
	err = p.publish(ctx, messages)
	if err == nil {
		err = p.same(ctx)
	}
	if more := c.printPublished(p, err); more != nil {
		return more
	}
	return err
}

// source is where messages come from.
type source struct {
	io.ReadCloser
	place string // what error texts call it
	name  string // begins the ids of its lines
	lines bool   // every line is a message
}

func (o pubOptions) open(stdin io.Reader) ([]source, error) {
	one := source{io.NopCloser(stdin), "stdin", o.id, o.lines}
	if o.given {
		one.ReadCloser = io.NopCloser(strings.NewReader(o.data))
	}
	if one.name == "" {
		one.name = rand.Text() // sent twice, it is stored once all the same
	}
	if len(o.files) == 0 {
		return []source{one}, nil
	}
	var all []source
	for _, file := range o.files {
		f, err := os.Open(file)
		if err != nil {
			for _, src := range all {
				_ = src.Close()
			}
			return nil, fmt.Errorf("read messages: %w", err)
		}
		src := source{f, file, o.id, true}
		if src.name == "" {
			src.name = filepath.Base(file)
		}
		all = append(all, src)
	}
	return all, nil
}

// read sends the messages of all sources to out and closes it. Of one that is
// larger than limit only the size goes on.
func (o pubOptions) read(ctx context.Context, sources []source, limit int, out chan<- message) {
	defer close(out)
	for _, src := range sources {
		if !src.read(ctx, limit, out) {
			return
		}
	}
}

// read is false when nothing more has to be read.
func (s source) read(ctx context.Context, limit int, out chan<- message) bool {
	r := bufio.NewReaderSize(s, 64<<10)
	for n := 1; ; n++ {
		m := message{id: s.name}
		if s.lines {
			line := ":" + strconv.Itoa(n)
			m.place, m.id = s.place+line, s.name+line
		}
		m.data, m.size, m.err = readUpTo(r, limit, s.lines)
		last := errors.Is(m.err, io.EOF)
		if last {
			m.err = nil
		}
		if m.size > 0 || m.err != nil || !s.lines {
			select {
			case out <- m:
			case <-ctx.Done():
				return false
			}
		}
		if last || m.err != nil {
			return m.err == nil
		}
	}
}

// readUpTo reads a line without its end, or all there is. It keeps one byte
// more than limit and counts the rest. The error is io.EOF after the last one.
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
