package mqrun

import "time"

// The fields of the ABI's meta and meta_i64.
const (
	metaSubject = iota
	metaStream
	metaPipeline
	metaPlugin
	metaTexts
)

const (
	metaSequence = iota
	metaAttempt
	metaAttempts
	metaTime
	metaPending
	metaTimeLeft
)

// Message is the message being handled. It, and every slice it hands out, is
// valid until the handler returns: copy what has to live longer.
//
// Nothing is fetched from the host before it is asked for.
type Message struct {
	size    int
	loaded  bool
	data    []byte
	scratch []byte
	// texts remembers the last value of each text field, so that a stream of
	// messages with one subject makes one string.
	texts [metaTexts]string
}

func (m *Message) reset(size int) { m.size, m.loaded = size, false }

// Data returns the payload, in a buffer that the next message overwrites. The
// handler may change it.
func (m *Message) Data() []byte {
	if !m.loaded {
		m.data = input(m.data[:0], m.size)
		m.loaded = true
	}
	return m.data
}

// AppendData appends the payload to dst, for a handler that keeps it.
func (m *Message) AppendData(dst []byte) []byte {
	if m.loaded {
		return append(dst, m.data...)
	}
	return input(dst, m.size)
}

func input(dst []byte, size int) []byte {
	at := len(dst)
	dst = extend(dst, size)
	n := abiInput(dst[at:])
	return dst[:at+min(n, size)]
}

// Subject returns the subject that the message was published to.
func (m *Message) Subject() string { return m.text(metaSubject) }

// Stream returns the name of the JetStream stream that the message came from.
func (m *Message) Stream() string { return m.text(metaStream) }

// Pipeline returns the name of the pipeline that runs the plugin.
func (m *Message) Pipeline() string { return m.text(metaPipeline) }

// Plugin returns the plugin's own name in the configuration.
func (m *Message) Plugin() string { return m.text(metaPlugin) }

// Sequence returns the message's sequence in its stream.
func (m *Message) Sequence() uint64 { return uint64(abiMetaInt(metaSequence)) }

// Attempt counts the handler calls for this message, from 1. Deliveries that
// never reached a handler do not count.
func (m *Message) Attempt() int { return int(abiMetaInt(metaAttempt)) }

// Attempts returns how many attempts the pipeline allows.
func (m *Message) Attempts() int { return int(abiMetaInt(metaAttempts)) }

// Time returns when the stream stored the message.
func (m *Message) Time() time.Time { return time.Unix(0, abiMetaInt(metaTime)) }

// Pending returns how many messages wait behind this one.
func (m *Message) Pending() uint64 { return uint64(abiMetaInt(metaPending)) }

// TimeLeft returns how long the handler may still run before the host stops it.
func (m *Message) TimeLeft() time.Duration {
	return time.Duration(abiMetaInt(metaTimeLeft)) * time.Millisecond
}

func (m *Message) text(field int32) string {
	n := abiMeta(field, m.scratch)
	if n > len(m.scratch) {
		m.scratch = make([]byte, max(n, 256))
		n = abiMeta(field, m.scratch)
	}
	if got := m.scratch[:max(n, 0)]; string(got) != m.texts[field] {
		m.texts[field] = string(got)
	}
	return m.texts[field]
}

// extend lengthens dst by n bytes of any content.
func extend(dst []byte, n int) []byte {
	if need := len(dst) + n; need > cap(dst) {
		grown := make([]byte, len(dst), max(need, 2*cap(dst), 512))
		copy(grown, dst)
		dst = grown
	}
	return dst[:len(dst)+n]
}
