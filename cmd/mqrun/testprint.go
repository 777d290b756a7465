package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
)

func (c *cli) printTested(results []tested, o testOptions) error {
	failed := 0
	for _, t := range results {
		if !t.OK {
			failed++
		}
	}
	var err error
	switch {
	case o.junit:
		err = c.printJUnit(results, failed)
	case c.json():
		err = c.printJSON(struct {
			Passed int      `json:"passed"`
			Failed int      `json:"failed"`
			Cases  []tested `json:"cases"`
		}{len(results) - failed, failed, results})
	default:
		c.printTestedText(results, failed, o.verbose)
	}
	switch {
	case err != nil:
		return err
	case len(results) == 0:
		return usagef("no case matches --run %q", o.run)
	case failed > 0:
		return &exitError{exitTest, errors.New("")} // they are the message
	}
	return nil
}

func (c *cli) printTestedText(results []tested, failed int, verbose bool) {
	for _, t := range results {
		switch {
		case !t.OK:
			fmt.Fprintf(c.stdout, "FAIL  %s:%d: %s\n", printable(t.File), t.Line, printable(t.Name))
			for _, d := range t.Differences {
				fmt.Fprintf(c.stdout, "      %s\n", strings.ReplaceAll(printable(d), "\n", "\n      "))
			}
		case verbose:
			fmt.Fprintf(c.stdout, "ok    %s:%d: %s (%s)\n", printable(t.File), t.Line, printable(t.Name), t.Took)
		}
	}
	if !c.quiet || failed > 0 {
		fmt.Fprintf(c.stdout, "%d passed, %d failed\n", len(results)-failed, failed)
	}
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"` // seconds
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (c *cli) printJUnit(results []tested, failed int) error {
	s := junitSuite{Name: "mqrun test", Tests: len(results), Failures: failed}
	for _, t := range results {
		jc := junitCase{Class: t.File, Name: t.Name, Time: fmt.Sprintf("%.6f", t.Took.Seconds())}
		if !t.OK {
			jc.Failure = &junitFailure{Message: t.Differences[0], Text: strings.Join(t.Differences, "\n")}
		}
		s.Cases = append(s.Cases, jc)
	}
	b, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.stdout, "%s%s\n", xml.Header, b); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
