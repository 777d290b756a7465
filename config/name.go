package config

import (
	"fmt"
	"strings"
)

// Names become parts of stream and consumer names, subjects, file names and
// ids, so their alphabets are those that need no escaping anywhere. The caps
// keep `mqrun-<pipeline>` and `MQRUN_<PIPELINE>` well within the server's 255.
const (
	maxName       = 64
	maxStreamName = 128
)

func shortName(s string) error {
	return checkName(s, maxName, "abcdefghijklmnopqrstuvwxyz0123456789-", "a-z, 0-9 and -")
}

func pipelineName(s string) error {
	if s == "dlq" {
		return fmt.Errorf(`the name "dlq" is taken: its stream would be MQRUN_DLQ, which holds the dead letters`)
	}
	return shortName(s)
}

func streamName(s string) error {
	if s == "MQRUN" || strings.HasPrefix(s, "MQRUN_") {
		return fmt.Errorf("settings for streams that mqrun lays out itself (MQRUN, MQRUN_*) are not in this version")
	}
	if strings.HasPrefix(s, "KV_") || strings.HasPrefix(s, "OBJ_") {
		return fmt.Errorf("names that begin with KV_ or OBJ_ belong to buckets")
	}
	return checkName(s, maxStreamName, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", "A-Z, 0-9, _ and -")
}

func checkName(s string, most int, alphabet, words string) error {
	switch {
	case s == "":
		return fmt.Errorf("the name is empty")
	case len(s) > most:
		return fmt.Errorf("the name has %d bytes; the limit is %d", len(s), most)
	case strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(alphabet, r) }):
		return fmt.Errorf("the name %s may hold only %s", quote(s), words)
	}
	return nil
}

// covers reports whether the row's key is the path.
func (r refusal) covers(path []string) bool {
	parts := strings.Split(r.key, ".")
	if len(parts) != len(path) {
		return false
	}
	for i, p := range parts {
		if p != "*" && p != path[i] {
			return false
		}
	}
	return true
}

// ValidName says what is wrong with the name of a plugin or pipeline, or nil.
func ValidName(s string) error { return shortName(s) }
