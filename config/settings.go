package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// flatten turns a plugin's config into what the guest can ask for: one text a
// top-level key, and all of it as JSON.
func flatten(settings map[string]any) (map[string]string, []byte) {
	texts := make(map[string]string, len(settings))
	for key, v := range settings {
		if s, ok := v.(string); ok {
			texts[key] = s
		} else {
			texts[key] = string(encode(v))
		}
	}
	if settings == nil {
		settings = map[string]any{}
	}
	return texts, encode(settings)
}

// encode is JSON without HTML escapes, which would grow text that the author
// wrote plainly.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings, lists and maps only
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
