package web

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// answer writes v as JSON when the request asks for it, else the text.
func answer(w http.ResponseWriter, r *http.Request, status int, text string, v any) {
	if !strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.TrimSuffix(text, "\n")+"\n")
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
