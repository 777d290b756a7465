package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync/atomic"
	"time"
)

// maxID is the longest Nats-Msg-Id that is sent as it is; the server remembers
// each one for the duplicate window.
const maxID = 128

// identity names one input stream of one pipeline in ids. The stream's
// creation time is part of it: a deleted and recreated stream starts again
// from sequence 1, and its messages are not the old ones. So is how often the
// stream has lost its end before a sequence: what is stored there now is not
// what was there then.
type identity struct {
	stream  string
	made    time.Time
	created string   // unix ns, base 36
	base    string   // <pipeline>:<stream>:<created>
	key     string   // <pipeline>.<stream>.<created>, for the attempts bucket and the journal
	rewound []uint64 // the stream's last sequence after each such loss, ascending

	gone atomic.Bool // the stream is another one by now: nothing of ours can be acked there
}

func newIdentity(pipeline, stream string, created time.Time, rewound ...uint64) *identity {
	c := strconv.FormatInt(created.UnixNano(), 36)
	return &identity{
		stream: stream, made: created, created: c,
		base: pipeline + ":" + stream + ":" + c,
		key:  pipeline + "." + stream + "." + c, rewound: rewound,
	}
}

// losses counts those that a sequence comes after.
func (i *identity) losses(sequence uint64) int {
	n := 0
	for _, last := range i.rewound {
		if sequence > last {
			n++
		}
	}
	return n
}

// keyAt is the key for the message at sequence, without the sequence itself.
func (i *identity) keyAt(sequence uint64) string {
	if n := i.losses(sequence); n > 0 {
		return i.key + "-" + strconv.Itoa(n)
	}
	return i.key
}

// appendID appends the Nats-Msg-Id of what the message at sequence causes; path
// is "dlq", or the emit positions from the first step on ("2.0.1"). It is the
// same for every delivery, so a repeated publish is stored once.
func (i *identity) appendID(b []byte, sequence uint64, path string) []byte {
	n := len(b)
	b = append(b, i.base...)
	if k := i.losses(sequence); k > 0 {
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(k), 10)
	}
	b = append(b, ':')
	b = strconv.AppendUint(b, sequence, 10)
	b = append(b, ':')
	b = append(b, path...)
	if len(b)-n <= maxID {
		return b
	}
	h := sha256.Sum256(b[n:])
	return hex.AppendEncode(b[:n], h[:])
}

func (i *identity) id(sequence uint64, path string) string {
	return string(i.appendID(nil, sequence, path))
}
