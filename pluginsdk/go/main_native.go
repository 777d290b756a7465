//go:build !wasip1

package mqrun

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// Main is what a plugin's func main calls. Built natively, it runs the handler
// over the lines of standard input, one message a line, and prints an outcome
// a line as JSON: a way to try a plugin on real data before there is a module.
// Flags: -subject, -attempt, and -config key=value as often as needed.
//
// In a plugin func main does not run.
func Main() {
	if err := run(os.Args[0], os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// printed is an Outcome for programs: payloads as text.
type printed struct {
	Sequence uint64          `json:"sequence"`
	Verdict  string          `json:"verdict"`
	Reason   string          `json:"reason,omitempty"`
	Delay    string          `json:"delay,omitempty"`
	Outputs  []printedOutput `json:"outputs,omitempty"`
	Log      []string        `json:"log,omitempty"`
}

type printedOutput struct {
	Subject string  `json:"subject,omitempty"`
	Header  []Field `json:"header,omitempty"`
	Data    string  `json:"data"`
}

func run(name string, args []string, stdin io.Reader, stdout io.Writer) error {
	in := Input{Config: map[string]string{}}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&in.Subject, "subject", "", "`subject` of the messages")
	flags.IntVar(&in.Attempt, "attempt", 1, "`number` of the attempt")
	flags.Func("config", "`key=value` of the plugin's config", func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return fmt.Errorf("want key=value")
		}
		in.Config[key] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if guest.handle == nil {
		return fmt.Errorf("no handler is registered: call mqrun.Handle in func init")
	}
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 64<<20)
	enc := json.NewEncoder(stdout) // unbuffered: what came before a panic is seen
	enc.SetEscapeHTML(false)
	for lines.Scan() {
		in.Sequence++
		in.Data = lines.Bytes()
		if err := enc.Encode(printable(in.Sequence, Test(guest.handle, in))); err != nil {
			return fmt.Errorf("print outcome: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}

func printable(sequence uint64, o Outcome) printed {
	p := printed{Sequence: sequence, Verdict: o.Verdict.String(), Reason: o.Reason}
	if o.Delayed {
		p.Delay = o.Delay.String()
	}
	for _, output := range o.Outputs {
		p.Outputs = append(p.Outputs, printedOutput{output.Subject, output.Header, string(output.Data)})
	}
	for _, line := range o.Log {
		p.Log = append(p.Log, line.Text)
	}
	return p
}
