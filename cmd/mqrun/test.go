package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/pipeline"
)

const testSuffix = ".test.yaml"

type testOptions struct {
	run                         string
	verbose, update, idempotent bool
	junit                       bool
	config                      bool // -c was given
	match                       *regexp.Regexp
}

// tested is the result of a case.
type tested struct {
	File        string        `json:"file"`
	Line        int           `json:"line"`
	Name        string        `json:"name"`
	OK          bool          `json:"ok"`
	Differences []string      `json:"differences"`
	Took        time.Duration `json:"took_ns"`
}

func (c *cli) testCommand() *cobra.Command {
	var o testOptions
	cmd := &cobra.Command{
		Use:   "test [FILE|DIR|DIR/...]...",
		Short: "Run test cases through plugins and pipelines, without a broker",
		Long: `Runs the cases of *.test.yaml files through the code that run uses, without a broker:
one plugin, one pipeline, or with chain: true every pipeline that follows. Default are
the files in this folder and below. The configuration is the file's own key config,
else -c, else the nearest pipelines.yaml above the file. Buckets are in memory and
begin empty with each case. Exits with 4 when a case fails.

  plugin: hello            # or pipeline: NAME, with chain: true for those behind it
  cases:
    - name: greets
      input: { json: { name: Ada } }     # or data, base64, file
      subject: ingest.hello
      headers: { Source: test }
      attempt: 1
      expect:
        verdict: ok                      # drop, retry, reject, trap, timeout ...
        outputs:                         # json: at least this; data: exactly this
          - json: { greeting: "hello, Ada" }`,
		Example: `  mqrun test
  mqrun test plugins/hello --run greets -v`,
		Args: positional(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.config = cmd.Flags().Changed("config")
			return c.test(cmd.Context(), args, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.run, "run", "", "only cases whose name matches the regular expression `PATTERN`")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also list the cases that pass")
	f.BoolVar(&o.update, "update", false, "write the files that outputs are compared with")
	f.BoolVar(&o.idempotent, "idempotent", false, "run every case twice, as a redelivery would; both must give the same")
	f.BoolVar(&o.junit, "junit", false, "print JUnit's XML")
	return cmd
}

func (c *cli) test(ctx context.Context, args []string, o testOptions) error {
	var err error
	if o.match, err = regexp.Compile(o.run); err != nil {
		return usagef("--run: %w", err)
	}
	names, err := testFiles(args)
	if err != nil {
		return err
	}
	// All files are read before the first case runs.
	var files []*testFile
	var bad []error
	for _, name := range names {
		f, err := readTest(name)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		files = append(files, f)
	}
	if bad != nil {
		return invalid(errors.Join(bad...))
	}
	results := []tested{}
	byConfig := map[string][]*testFile{}
	var order []string
	for _, f := range files {
		key, err := c.configOf(f, o)
		if err != nil {
			return err
		}
		if byConfig[key] == nil {
			order = append(order, key)
		}
		byConfig[key] = append(byConfig[key], f)
	}
	for _, key := range order {
		got, err := c.testWith(ctx, strings.Split(key, "\x00"), byConfig[key], o)
		if err != nil {
			return err
		}
		results = append(results, got...)
	}
	return c.printTested(results, o)
}

// testFiles finds the files that the arguments name.
func testFiles(args []string) ([]string, error) {
	if len(args) == 0 {
		args = []string{"./..."}
	}
	var names []string
	for _, arg := range args {
		dir, deep := strings.CutSuffix(arg, "/...")
		if deep && dir == "" {
			dir = "/"
		}
		info, err := os.Stat(dir)
		if err != nil {
			return nil, fmt.Errorf("%w; name a *%s file or a folder", err, testSuffix)
		}
		if !info.IsDir() {
			names = append(names, filepath.Clean(dir))
			continue
		}
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != dir && (!deep || strings.HasPrefix(d.Name(), ".")):
				return fs.SkipDir
			case !d.IsDir() && strings.HasSuffix(path, testSuffix):
				names = append(names, filepath.Clean(path))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if names == nil {
		return nil, fmt.Errorf("no *%s below %s; mqrun test --help shows one", testSuffix, strings.Join(args, ", "))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// configOf is the configuration for a test file, as files joined by \x00.
func (c *cli) configOf(f *testFile, o testOptions) (string, error) {
	if f.Config != "" {
		return filepath.Join(f.dir(), f.Config), nil
	}
	if o.config {
		return strings.Join(c.configs, "\x00"), nil
	}
	dir, err := filepath.Abs(f.dir())
	if err != nil {
		return "", err
	}
	for {
		name := filepath.Join(dir, "pipelines.yaml")
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("%s: no pipelines.yaml beside it or above; name the configuration with -c, or in it with the key config", f.name)
		}
		dir = up
	}
}

// testWith runs the files that share a configuration.
func (c *cli) testWith(ctx context.Context, configs []string, files []*testFile, o testOptions) (results []tested, err error) {
	cfg, err := c.load(configs)
	if err != nil {
		return nil, err
	}
	rt, err := host.New(ctx, host.Options{Logger: slog.New(slog.DiscardHandler), CacheDir: userCache()})
	if err != nil {
		return nil, err
	}
	defer func() { err = also(err, rt.Close(context.WithoutCancel(ctx))) }()
	r, err := pipeline.OpenRehearsal(ctx, rt, cfg)
	if err != nil {
		return nil, invalid(err)
	}
	defer func() { err = also(err, r.Close(context.WithoutCancel(ctx))) }()
	for _, f := range files {
		for i := range f.Cases {
			if !o.match.MatchString(f.Cases[i].Name) {
				continue
			}
			t, err := testOne(ctx, r, f, &f.Cases[i], o)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", f.name, f.Cases[i].line, err)
			}
			results = append(results, t)
		}
	}
	return results, nil
}

func testOne(ctx context.Context, r *pipeline.Rehearsal, f *testFile, c *testCase, o testOptions) (tested, error) {
	in, err := c.message(f.dir())
	if err != nil {
		return tested{}, err
	}
	r.Forget()
	began := time.Now()
	first, later, out, err := f.perform(ctx, r, in)
	if err != nil {
		return tested{}, err
	}
	t := tested{File: f.name, Line: c.line, Name: c.Name, Took: time.Since(began), Differences: []string{}}
	if o.update {
		if err := c.Expect.update(f.dir(), out); err != nil {
			return tested{}, err
		}
	}
	t.Differences = append(t.Differences, c.Expect.differences(f.dir(), first, later, out)...)
	if o.idempotent {
		again, _, repeated, err := f.perform(ctx, r, in)
		if err != nil {
			return tested{}, err
		}
		t.Differences = append(t.Differences, repeats(first, again, out, repeated)...)
	}
	t.OK = len(t.Differences) == 0
	return t, nil
}

func (f *testFile) perform(ctx context.Context, r *pipeline.Rehearsal, in pipeline.Line) (first pipeline.Performance, later []pipeline.Performance, out []pipeline.Line, err error) {
	switch {
	case f.Plugin != "":
		first, err = r.Plugin(ctx, f.Plugin, in)
	case !f.Chain:
		first, err = r.Pipeline(ctx, f.Pipeline, in)
	default:
		all, out, err := r.Chain(ctx, f.Pipeline, in)
		if err != nil {
			return first, nil, nil, err
		}
		return all[0], all[1:], out, nil
	}
	return first, nil, first.Outputs, err
}

// repeats says how a second run of the same message differs from the first.
func repeats(a, b pipeline.Performance, out, again []pipeline.Line) (d []string) {
	if a.Verdict != b.Verdict {
		d = append(d, fmt.Sprintf("not idempotent: %s at first, then %s", describe(a), describe(b)))
	}
	for i := range max(len(out), len(again)) {
		switch {
		case i >= len(out):
			d = append(d, fmt.Sprintf("not idempotent: output %d only came the second time: %s", i, shortLine(again[i])))
		case i >= len(again):
			d = append(d, fmt.Sprintf("not idempotent: output %d only came the first time: %s", i, shortLine(out[i])))
		case shortLine(out[i]) != shortLine(again[i]) || string(out[i].Data) != string(again[i].Data):
			d = append(d, fmt.Sprintf("not idempotent: output %d was %s, then %s", i, shortLine(out[i]), shortLine(again[i])))
		}
	}
	return d
}
