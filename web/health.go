package web

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/mqrun/mqrun/pipeline"
)

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	answer(w, r, http.StatusOK, "ok", map[string]string{"status": "ok"})
}

type readiness struct {
	Ready      bool              `json:"ready"`
	Generation uint64            `json:"generation"`
	Pipelines  []pipeline.Status `json:"pipelines"`
	Problems   []string          `json:"reload_problems,omitempty"`
}

// ready names every pipeline that does not take messages. A reload that was
// refused is told too, but is no reason to take no requests: the generation
// before goes on.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	a := readiness{Generation: s.o.Pipelines.Generation()}
	if a.Generation == 0 {
		a.Pipelines = []pipeline.Status{}
		why := "no configuration is applied yet"
		if p, ok := s.o.Pipelines.(interface{ Waiting() string }); ok && p.Waiting() != "" {
			why = p.Waiting()
		}
		answer(w, r, http.StatusServiceUnavailable, "starting: "+why, a)
		return
	}
	a.Pipelines = s.o.Pipelines.Status()
	var text strings.Builder
	for _, p := range a.Pipelines {
		if !p.Ready() {
			fmt.Fprintf(&text, "%s: %s: %s\n", p.Name, p.State, p.Why)
		}
	}
	stopped := text.Len() > 0
	if !stopped {
		text.WriteString("ok\n")
	}
	if a.Problems = s.o.Reloader.Last().Problems; len(a.Problems) > 0 {
		fmt.Fprintf(&text, "the last reload was refused, generation %d goes on:\n%s\n", a.Generation, strings.Join(a.Problems, "\n"))
	}
	if stopped {
		answer(w, r, http.StatusServiceUnavailable, text.String(), a)
		return
	}
	a.Ready = true
	answer(w, r, http.StatusOK, text.String(), a)
}
