package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/subject"
)

// testFile is a *.test.yaml: cases of one plugin or one pipeline.
type testFile struct {
	name string

	Plugin   string     `yaml:"plugin"`
	Pipeline string     `yaml:"pipeline"`
	Chain    bool       `yaml:"chain"` // follow what is published through the other pipelines
	Config   string     `yaml:"config"`
	Cases    []testCase `yaml:"cases"`
}

type testCase struct {
	line int

	Name    string            `yaml:"name"`
	Input   testData          `yaml:"input"`
	Subject string            `yaml:"subject"`
	Headers map[string]string `yaml:"headers"`
	Attempt int               `yaml:"attempt"`
	Expect  expectation       `yaml:"expect"`
}

// testData is a payload: text, JSON, base64, or a file beside the test.
type testData struct {
	Data   *string   `yaml:"data"`
	JSON   yaml.Node `yaml:"json"`
	Base64 *string   `yaml:"base64"`
	File   string    `yaml:"file"`
}

type expectation struct {
	Verdict  string            `yaml:"verdict"` // default ok
	Reason   string            `yaml:"reason"`  // part of it
	Log      string            `yaml:"log"`     // part of it
	Dead     *bool             `yaml:"dead"`
	Outputs  *[]expectedOutput `yaml:"outputs"`
	Failures []expectedFailure `yaml:"failures"` // of a chain, behind the first pipeline
}

type expectedOutput struct {
	Subject  string            `yaml:"subject"`
	Headers  map[string]string `yaml:"headers"`
	testData `yaml:",inline"`
}

type expectedFailure struct {
	Pipeline string `yaml:"pipeline"`
	Verdict  string `yaml:"verdict"`
	Reason   string `yaml:"reason"`
}

var (
	yamlLine  = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	yamlField = regexp.MustCompile(`^field (\S+) not found in type .*$`)
)

// readTest reads a file and checks it. Errors begin with the file and the line.
func readTest(name string) (*testFile, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := &testFile{name: name}
	d := yaml.NewDecoder(strings.NewReader(string(data)))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil {
		return nil, invalid(placed(name, err))
	}
	var lines struct{ Cases []yaml.Node }
	if err := yaml.Unmarshal(data, &lines); err == nil {
		for i := range f.Cases {
			f.Cases[i].line = lines.Cases[i].Line
		}
	}
	if err := f.check(); err != nil {
		return nil, invalid(err)
	}
	return f, nil
}

// placed says where a YAML error is, as file:line.
func placed(name string, err error) error {
	var errs []error
	texts := []string{err.Error()}
	if te, ok := errors.AsType[*yaml.TypeError](err); ok {
		texts = te.Errors
	}
	for _, text := range texts {
		at := name
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			at, text = name+":"+m[1], m[2]
		}
		if m := yamlField.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("unknown key %q", m[1])
		}
		errs = append(errs, fmt.Errorf("%s: %s", at, strings.TrimPrefix(text, "yaml: ")))
	}
	return errors.Join(errs...)
}

func (f *testFile) check() error {
	var errs []error
	complain := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: %s", f.name, line, fmt.Sprintf(format, args...)))
	}
	switch {
	case (f.Plugin == "") == (f.Pipeline == ""):
		complain(1, "it names a plugin or a pipeline to test: one of the keys plugin and pipeline")
	case f.Chain && f.Pipeline == "":
		complain(1, "chain follows a pipeline; a plugin alone has none")
	case len(f.Cases) == 0:
		complain(1, "it has no cases")
	}
	seen := map[string]bool{}
	for i := range f.Cases {
		c := &f.Cases[i]
		if c.Name == "" {
			c.Name = "case " + strconv.Itoa(i+1)
		}
		if seen[c.Name] {
			complain(c.line, "two cases are called %q", c.Name)
		}
		seen[c.Name] = true
		if c.Subject == "" {
			c.Subject = "ingest.test"
		}
		if err := subject.Valid(c.Subject); err != nil {
			complain(c.line, "subject: %v", err)
		}
		if c.Attempt < 0 {
			complain(c.line, "attempt is %d; the first one is 1", c.Attempt)
		}
		if c.Expect.Verdict == "" {
			c.Expect.Verdict = "ok"
		}
		if len(c.Expect.Failures) > 0 && !f.Chain {
			complain(c.line, "expect.failures are of a chain; write chain: true at the top")
		}
		if _, err := c.Input.bytes(f.dir()); err != nil {
			complain(c.line, "input: %v", err)
		}
		for k, o := range deref(c.Expect.Outputs) {
			if o.count() > 1 {
				complain(c.line, "expect.outputs[%d]: give one of data, json, base64 and file", k)
			}
		}
	}
	return errors.Join(errs...)
}

func deref(o *[]expectedOutput) []expectedOutput {
	if o == nil {
		return nil
	}
	return *o
}

func (f *testFile) dir() string { return filepath.Dir(f.name) }

// count is how many ways of saying what a payload is are used.
func (d *testData) count() int {
	n := 0
	for _, is := range []bool{d.Data != nil, !d.JSON.IsZero(), d.Base64 != nil, d.File != ""} {
		if is {
			n++
		}
	}
	return n
}

// bytes is the payload; of nothing it is empty.
func (d *testData) bytes(dir string) ([]byte, error) {
	switch {
	case d.count() > 1:
		return nil, errors.New("give one of data, json, base64 and file")
	case d.Data != nil:
		return []byte(*d.Data), nil
	case d.Base64 != nil:
		return base64.StdEncoding.DecodeString(*d.Base64)
	case d.File != "":
		return os.ReadFile(filepath.Join(dir, d.File))
	case !d.JSON.IsZero():
		var v any
		if err := d.JSON.Decode(&v); err != nil {
			return nil, err
		}
		return json.Marshal(v)
	}
	return nil, nil
}

// line is the case's message.
func (c *testCase) message(dir string) (pipeline.Line, error) {
	data, err := c.Input.bytes(dir)
	l := pipeline.Line{Subject: c.Subject, Data: data, Attempt: c.Attempt, Header: map[string][]string{}}
	for name, v := range c.Headers {
		l.Header[name] = []string{v}
	}
	return l, err
}
