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
}

// ready names every pipeline that does not take messages.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	a := readiness{Generation: s.o.Pipelines.Generation()}
	if a.Generation == 0 {
		a.Pipelines = []pipeline.Status{}
		answer(w, r, http.StatusServiceUnavailable, "starting: no configuration is applied yet", a)
		return
	}
	a.Pipelines = s.o.Pipelines.Status()
	var text strings.Builder
	for _, p := range a.Pipelines {
		if !p.Ready() {
			fmt.Fprintf(&text, "%s: %s: %s\n", p.Name, p.State, p.Why)
		}
	}
	if text.Len() > 0 {
		answer(w, r, http.StatusServiceUnavailable, text.String(), a)
		return
	}
	a.Ready = true
	answer(w, r, http.StatusOK, "ok", a)
}
