package pipeline

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	maxDeadHeader = 32 << 10 // all Mqrun-* headers of a dead letter together
	maxDeadError  = 4 << 10
	maxDeadLog    = 2 << 10
	// deadRoom is what a dead letter may need beyond its payload and the
	// original's headers; our streams keep max_msg_size that far below
	// max_payload.
	deadRoom = 64 << 10
)

// dead says why a message was given up.
type dead struct {
	reason, text string
	code         int32 // the guest's, when it returned one
	returned     bool
	exhausted    bool
	step, plugin string
	generation   uint64
	attempts     int
	log          []byte
	at           time.Time
}

// deadHeader is the whole header table of a dead letter. Control headers of
// the original are kept under other names: sent as they were they would make
// the server drop the dead letter as a duplicate, roll the stream up, or
// refuse it.
func deadHeader(pipeline string, s *slot, d dead) nats.Header {
	h := nats.Header{}
	room := maxDeadHeader
	redo := s.src.redo != "" && s.msg.Subject == s.src.redo
	for name, values := range s.msg.Header {
		switch {
		case redo && hasPrefixFold(name, prefixOrig) && sendable(name): // what it had before it died first
			h[name] = values
			for _, v := range values {
				room -= len(name) + len(v) + 4
			}
		case hasPrefixFold(name, prefixOurs): // a stranger's, or of an earlier dead letter
		case redo && hasPrefixFold(name, prefixNats): // the replay's own
		case !sendable(name):
			for _, v := range values {
				field := base64.StdEncoding.EncodeToString([]byte(name + ": " + v))
				if room -= len(hdrUnsendable) + len(field) + 4; room > maxDeadHeader/2 {
					h[hdrUnsendable] = append(h[hdrUnsendable], field)
				}
			}
		case hasPrefixFold(name, prefixNats):
			for _, v := range values {
				room -= len(prefixOrig) + len(name) + len(v)
			}
			h[prefixOrig+name] = values
		default:
			h[name] = values
		}
	}
	set := func(name, value string) {
		room -= len(name) + len(value) + 4
		h[prefixOurs+name] = []string{value}
	}
	set("Reason", d.reason)
	if d.returned {
		set("Code", strconv.FormatInt(int64(d.code), 10))
	}
	set("Exhausted", strconv.FormatBool(d.exhausted))
	set("Pipeline", pipeline)
	set("Step", d.step)
	set("Plugin", d.plugin)
	set("Generation", strconv.FormatUint(d.generation, 10))
	set("Stream", s.src.stream)
	set("Sequence", strconv.FormatUint(s.info.Sequence, 10))
	set("Subject", s.subject)
	set("Deliveries", strconv.FormatUint(s.info.Deliveries, 10))
	set("Attempts", strconv.Itoa(d.attempts))
	set("Time", d.at.UTC().Format(time.RFC3339Nano))
	set("Error", headerSafe(d.text, max(0, min(maxDeadError, room-256))))
	set("Log", headerSafe(string(d.log), max(0, min(maxDeadLog, room-64))))
	return h
}

// headerSafe makes text fit for a header value: no line breaks or other
// control characters, valid UTF-8, at most limit bytes.
func headerSafe(s string, limit int) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '|'
		case r < ' ' || r == 0x7f:
			return ' '
		}
		return r
	}, s)
	for len(s) > limit {
		cut := strings.ToValidUTF8(s[:limit], "")
		if cut == s {
			break
		}
		s = cut
	}
	return s
}

// headerSize is what the headers take on the wire.
func headerSize(h nats.Header) int {
	n := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return n
}

// deadLetter is the message for the dead letter stream. When it or
// its headers would pass the server's limit, a stub with a pointer to the original (Mqrun-Stream,
// Mqrun-Sequence) goes there instead.
func deadLetter(pipeline string, s *slot, d dead, limit int64) (nats.Header, []byte) {
	h := deadHeader(pipeline, s, d)
	if size := headerSize(h) + len(hdrMsgID) + maxID + 4; size <= maxHeader && int64(size+len(s.msg.Data)) <= limit {
		return h, s.msg.Data
	}
	for name := range h {
		if !strings.HasPrefix(name, prefixOurs) || strings.HasPrefix(name, prefixOrig) {
			delete(h, name)
		}
	}
	h[hdrStub] = []string{strconv.Itoa(len(s.msg.Data))}
	return h, nil
}
