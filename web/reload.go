package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/pipeline"
)

type refusal struct {
	Error    string          `json:"error"`
	Problems config.Problems `json:"problems,omitempty"`
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, fmt.Sprintf("read request: %v", err), http.StatusRequestEntityTooLarge)
		return
	}
	// Both deadlines are of the whole connection and set for short answers.
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(reloadLimit))
	_ = c.SetWriteDeadline(time.Now().Add(reloadLimit))
	plan, err := s.o.Reloader.Reload(r.Context())
	problems, refused := errors.AsType[config.Problems](err)
	switch {
	case err == nil:
		answer(w, r, http.StatusOK, fmt.Sprintf("generation %d: %s", plan.Generation, plan), plan)
	case refused:
		answer(w, r, http.StatusUnprocessableEntity, problems.Error(), refusal{"configuration refused; nothing changed", problems})
	case errors.Is(err, pipeline.ErrClosed):
		answer(w, r, http.StatusServiceUnavailable, err.Error(), refusal{Error: err.Error()})
	default:
		answer(w, r, http.StatusInternalServerError, err.Error(), refusal{Error: err.Error()})
	}
}

func (s *Server) lastReload(w http.ResponseWriter, r *http.Request) {
	last := s.o.Reloader.Last()
	result := last.Plan
	if len(last.Problems) > 0 {
		result = "refused, nothing changed:\n" + strings.Join(last.Problems, "\n")
	}
	at := last.Time.UTC().Format(time.RFC3339)
	answer(w, r, http.StatusOK, fmt.Sprintf("generation %d, config %s, %s by %s: %s", last.Generation, last.Config, at, last.By, result), last)
}
