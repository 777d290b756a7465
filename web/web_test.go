package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/pipeline"
	"github.com/mqrun/mqrun/web"
)

// desk stands for the manager and the reloader.
type desk struct {
	status     []pipeline.Status
	generation uint64
	plan       pipeline.Plan
	err        error
	reloads    int
}

func (d *desk) Status() []pipeline.Status { return d.status }
func (d *desk) Generation() uint64        { return d.generation }

func (d *desk) Pending(context.Context) map[string]uint64 { return map[string]uint64{"orders": 7} }

func (d *desk) Reload(context.Context) (pipeline.Plan, error) {
	d.reloads++
	return d.plan, d.err
}

func (d *desk) Last() web.Reload {
	return web.Reload{Generation: d.generation, Config: "0123456789ab", Time: time.Unix(0, 0), By: "start", Plan: d.plan.String()}
}

func (d *desk) handler() http.Handler {
	return web.New(web.Options{Pipelines: d, Reloader: d, Logger: slog.New(slog.DiscardHandler)}).Handler("127.0.0.1:4280")
}

// request with headers as "Name: value"; Host is one of them.
func request(t *testing.T, h http.Handler, method, path string, body io.Reader, headers ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, body)
	r.Host = "127.0.0.1:4280"
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestReady(t *testing.T) {
	ready := pipeline.Status{Name: "parse", State: pipeline.StateRunning}
	blocked := pipeline.Status{Name: "alert", State: pipeline.StateBlocked, Why: "stream MQRUN_ALERT is full"}
	lost := pipeline.Status{Name: "classify", State: pipeline.StateLost, Why: "consumer is gone"}
	for _, tt := range []struct {
		name string
		desk desk
		code int
		body string
	}{
		{"starting", desk{}, 503, "starting: no configuration is applied yet\n"},
		{"ready", desk{generation: 1, status: []pipeline.Status{ready}}, 200, "ok\n"},
		{"no pipelines", desk{generation: 1}, 200, "ok\n"},
		{
			"each that is not", desk{generation: 3, status: []pipeline.Status{blocked, lost, ready}}, 503,
			"alert: blocked: stream MQRUN_ALERT is full\nclassify: lost: consumer is gone\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := tt.desk.handler()
			if code, body := request(t, h, "GET", "/readyz", nil); code != tt.code || body != tt.body {
				t.Errorf("got %d %q, want %d %q", code, body, tt.code, tt.body)
			}
			code, body := request(t, h, "GET", "/readyz", nil, "Accept: application/json")
			var got struct {
				Ready      *bool
				Generation uint64
				Pipelines  []pipeline.Status
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || got.Ready == nil {
				t.Fatalf("%v in %q", err, body)
			}
			if code != tt.code || *got.Ready != (tt.code == 200) || got.Generation != tt.desk.generation || len(got.Pipelines) != len(tt.desk.status) {
				t.Errorf("got %d %s", code, body)
			}
			// A process that is not ready is alive.
			if code, body := request(t, h, "GET", "/healthz", nil); code != 200 || body != "ok\n" {
				t.Errorf("health: %d %q", code, body)
			}
		})
	}
}

func TestReload(t *testing.T) {
	problems := config.Problems{{File: "pipelines.yaml", Line: 3, Col: 5, Path: "pipelines.a.form", Message: "unknown key", Hint: "from"}}
	for _, tt := range []struct {
		name string
		desk desk
		code int
		text string
		json string
	}{
		{"plan", desk{plan: pipeline.Plan{Generation: 2, Start: []string{"a"}}}, 200, "generation 2: start a\n", `"start":["a"]`},
		{"no change", desk{plan: pipeline.Plan{Generation: 3}}, 200, "generation 3: no change\n", `"generation":3`},
		{"problems", desk{err: problems}, 422, problems.Error() + "\n", `"line":3`},
		{"stopping", desk{err: pipeline.ErrClosed}, 503, "pipelines are stopped\n", `"error":`},
		{"server", desk{err: errors.New("ensure stream: no space")}, 500, "ensure stream: no space\n", `"error":"ensure stream: no space"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := tt.desk.handler()
			if code, body := request(t, h, "POST", "/-/reload", nil); code != tt.code || body != tt.text {
				t.Errorf("got %d %q, want %d %q", code, body, tt.code, tt.text)
			}
			code, body := request(t, h, "POST", "/-/reload", nil, "Accept: application/json")
			if code != tt.code || !strings.Contains(body, tt.json) || !json.Valid([]byte(body)) {
				t.Errorf("got %d %q, want %d and %s", code, body, tt.code, tt.json)
			}
		})
	}
	d := desk{generation: 4}
	if code, body := request(t, d.handler(), "GET", "/-/reload", nil); code != 200 || body != "generation 4, config 0123456789ab, 1970-01-01T00:00:00Z by start: no change\n" {
		t.Errorf("last: %d %q", code, body)
	}
	if d.reloads != 0 {
		t.Error("a GET reloads")
	}
}

// TestGuard: what a web page in somebody's browser could send is refused.
func TestGuard(t *testing.T) {
	for _, tt := range []struct {
		name, method, path string
		headers            []string
		code               int
	}{
		{"curl", "POST", "/-/reload", nil, 200},
		{"own page", "POST", "/-/reload", []string{"Origin: http://127.0.0.1:4280", "Sec-Fetch-Site: same-origin"}, 200},
		{"other site", "POST", "/-/reload", []string{"Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}, 403},
		{"other site, old browser", "POST", "/-/reload", []string{"Origin: http://evil.example"}, 403},
		{"other port", "POST", "/-/reload", []string{"Host: localhost:4280", "Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"}, 403},
		{"sandboxed frame", "POST", "/-/reload", []string{"Origin: null"}, 403},
		{"rebound name", "GET", "/readyz", []string{"Host: evil.example:4280"}, 421},
		{"rebound name posts", "POST", "/-/reload", []string{"Host: evil.example:4280", "Origin: http://evil.example:4280"}, 421},
		{"name that begins like ours", "GET", "/readyz", []string{"Host: localhost.evil.example"}, 421},
		{"address of the network", "GET", "/readyz", []string{"Host: 10.0.0.1:4280"}, 421},
		{"no host", "GET", "/readyz", []string{"Host: "}, 421},
		{"localhost", "GET", "/readyz", []string{"Host: LocalHost.:4280"}, 200},
		{"IPv6", "GET", "/readyz", []string{"Host: [::1]:4280"}, 200},
		{"IPv6 without port", "GET", "/readyz", []string{"Host: [::1]"}, 200},
		{"head", "HEAD", "/readyz", nil, 200},
		{"wrong method", "DELETE", "/-/reload", nil, 405},
		{"unknown path", "GET", "/", nil, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := desk{generation: 1}
			code, body := request(t, d.handler(), tt.method, tt.path, nil, tt.headers...)
			if code != tt.code {
				t.Errorf("got %d %q, want %d", code, body, tt.code)
			}
			if want := tt.method == "POST" && tt.code == 200; (d.reloads == 1) != want {
				t.Errorf("reloaded %d times", d.reloads)
			}
		})
	}
}

func TestGuard_body(t *testing.T) {
	d := desk{}
	large := bytes.NewReader(make([]byte, 1<<20))
	if code, _ := request(t, d.handler(), "POST", "/-/reload", large); code != http.StatusRequestEntityTooLarge || d.reloads != 0 {
		t.Errorf("got %d, and %d reloads", code, d.reloads)
	}
}

func TestLIF03_Listen(t *testing.T) {
	l, err := web.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = web.Listen(t.Context(), l.Addr().String())
	if !errors.Is(err, web.ErrListen) || !strings.Contains(err.Error(), l.Addr().String()+" is in use") {
		t.Errorf("got %v, want the address and ErrListen", err)
	}
}

func TestServe(t *testing.T) {
	l, err := web.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{generation: 1}
	s := web.New(web.Options{Pipelines: d, Reloader: d, Logger: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("got %s", resp.Status)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve after Close: %v, want nil", err)
	}
}
