package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

func (c *cli) dlqShowCommand() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "show SEQ",
		Short: "Print a dead letter: why, its headers, what the guest logged, its payload",
		Args:  positional(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || seq == 0 {
				return usagef("%q is no sequence; take one from the SEQ column of mqrun dlq ls", args[0])
			}
			return c.showLetter(cmd.Context(), seq, raw)
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "write the payload alone, byte for byte")
	return cmd
}

// directHeaders are what the server adds to a message that is read by its
// sequence. No stored one has them: a dead letter renames the original's.
var directHeaders = []string{"Nats-Stream", "Nats-Sequence", "Nats-Subject", "Nats-Time-Stamp"}

type shown struct {
	letter
	DeadLetterSubject string              `json:"dead_letter_subject"`
	Headers           map[string][]string `json:"headers"`
	Log               []string            `json:"log"`
	Data              []byte              `json:"data"`           // base64
	JSON              json.RawMessage     `json:"json,omitempty"` // the payload, when it is JSON
}

func (c *cli) showLetter(ctx context.Context, seq uint64, raw bool) error {
	nc, st, err := c.deadLetters(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	m, err := st.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("show dead letter %d: there is none with this sequence; mqrun dlq ls lists them", seq)
	}
	if err != nil {
		return fmt.Errorf("show dead letter %d: %w", seq, err)
	}
	if raw {
		if _, err := c.stdout.Write(m.Data); err != nil {
			return fmt.Errorf("write payload: %w", err)
		}
		return nil
	}
	for _, name := range directHeaders {
		m.Header.Del(name)
	}
	s := shown{
		letter:            readLetter(m.Sequence, m.Time, m.Header, len(m.Data)),
		DeadLetterSubject: m.Subject, Headers: m.Header, Log: []string{}, Data: m.Data,
	}
	if text := m.Header.Get("Mqrun-Log"); text != "" {
		s.Log = strings.Split(text, "|") // how line breaks travel in a header
	}
	if json.Valid(m.Data) {
		s.JSON = m.Data
	}
	if c.json() {
		return c.printJSON(s)
	}
	var b bytes.Buffer
	s.write(&b)
	if _, err := c.stdout.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	return nil
}

// write prints the letter for people. Nothing in it reaches the terminal as a
// control character.
func (s shown) write(w io.Writer) {
	fmt.Fprintf(w, "dead letter %d on %s, %s\n", s.Sequence, s.DeadLetterSubject, s.Time.UTC().Format(time.RFC3339))
	fmt.Fprintf(w, "pipeline %s gave up message %d of stream %s (%s) in step %s after %s, %s\n",
		s.Pipeline, s.Original, s.Stream, s.Subject, s.Step, plural(s.Attempts, "attempt"), s.Plugin)
	fmt.Fprintf(w, "\n%s: %s\n", s.Reason, printable(s.Error))
	fmt.Fprintln(w, "\nheaders")
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		for _, v := range s.Headers[name] {
			if name != "Mqrun-Log" && name != "Mqrun-Error" {
				fmt.Fprintf(w, "  %s: %s\n", printable(name), printable(v))
			}
		}
	}
	if len(s.Log) > 0 {
		fmt.Fprintln(w, "\nlog of the guest")
		for _, line := range s.Log {
			fmt.Fprintf(w, "  %s\n", printable(line))
		}
	}
	fmt.Fprintf(w, "\npayload, %s\n", size(int64(len(s.Data))))
	_, _ = io.WriteString(w, payload(s.Data))
}

// payload is indented JSON, text, or a hex dump.
func payload(data []byte) string {
	var b bytes.Buffer
	switch {
	case len(data) == 0:
		return ""
	case json.Valid(data) && json.Indent(&b, data, "", "  ") == nil && utf8.Valid(b.Bytes()):
		return printable(strings.TrimSpace(b.String())) + "\n"
	case utf8.Valid(data) && printable(string(data)) == string(data):
		return strings.TrimSuffix(string(data), "\n") + "\n"
	}
	return hex.Dump(data)
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return '?'
	}, s)
}
