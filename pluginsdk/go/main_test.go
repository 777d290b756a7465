//go:build !wasip1

package mqrun

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	t.Cleanup(func() { guest = plugin{} })
	Handle(func(m *Message) error {
		if len(m.Data()) == 0 {
			return RetryAfter(time.Second, "empty")
		}
		limit, _ := Config("limit")
		Log(Info, limit)
		return errors.Join(m.AddHeader("A", "1"), m.EmitTo(m.Subject()+".out", m.Data()))
	})
	var out bytes.Buffer
	if err := run("plugin", []string{"-subject", "in", "-config", "limit=a=b"}, strings.NewReader("<1>\n\n"), &out); err != nil {
		t.Fatal(err)
	}
	want := `{"sequence":1,"verdict":"OK","outputs":[{"subject":"in.out","header":[{"Name":"A","Value":"1"}],"data":"<1>"}],"log":["a=b"]}
{"sequence":2,"verdict":"RETRY","reason":"empty","delay":"1s"}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

// What came before a panic is printed.
func TestRun_panic(t *testing.T) {
	t.Cleanup(func() { guest = plugin{} })
	Handle(func(m *Message) error {
		if string(m.Data()) == "bad" {
			panic("bad")
		}
		return nil
	})
	var out bytes.Buffer
	defer func() {
		if recover() == nil || !strings.Contains(out.String(), `"sequence":1`) {
			t.Errorf("printed %q; want the first outcome, then the panic", &out)
		}
	}()
	_ = run("plugin", nil, strings.NewReader("good\nbad\n"), &out)
}

func TestRun_withoutHandler(t *testing.T) {
	if err := run("plugin", nil, strings.NewReader(""), &bytes.Buffer{}); err == nil {
		t.Error("got nil; want an error that names mqrun.Handle")
	}
}
