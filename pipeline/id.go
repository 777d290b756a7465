package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// maxID is the longest Nats-Msg-Id that is sent as it is; the server remembers
// each one for the duplicate window.
const maxID = 128

// identity names one input stream of one pipeline in ids. The stream's
// creation time is part of it: a deleted and recreated stream starts again
// from sequence 1, and its messages are not the old ones.
type identity struct {
	stream  string
	created string // unix ns, base 36
	prefix  string // <pipeline>:<stream>:<created>:
	key     string // <pipeline>.<stream>.<created>, for the attempts bucket and the journal
}

func newIdentity(pipeline, stream string, created time.Time) identity {
	c := strconv.FormatInt(created.UnixNano(), 36)
	return identity{
		stream: stream, created: c,
		prefix: pipeline + ":" + stream + ":" + c + ":",
		key:    pipeline + "." + stream + "." + c,
	}
}

// appendID appends the Nats-Msg-Id of what the message at sequence causes; path
// is "dlq", or the emit positions from the first step on ("2.0.1"). It is the
// same for every delivery, so a repeated publish is stored once.
func (i identity) appendID(b []byte, sequence uint64, path string) []byte {
	n := len(b)
	b = append(b, i.prefix...)
	b = strconv.AppendUint(b, sequence, 10)
	b = append(b, ':')
	b = append(b, path...)
	if len(b)-n <= maxID {
		return b
	}
	h := sha256.Sum256(b[n:])
	return hex.AppendEncode(b[:n], h[:])
}

func (i identity) id(sequence uint64, path string) string {
	return string(i.appendID(nil, sequence, path))
}
