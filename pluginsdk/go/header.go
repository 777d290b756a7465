package mqrun

import (
	"bytes"
	"iter"
)

// Header returns the first value of the named header, and whether there is one.
// The name's case does not matter. Headers that begin with Nats- or Mqrun- are
// the host's and never seen.
func (m *Message) Header(name string) (string, bool) {
	n := m.headerAt(name, 0)
	if n < 0 {
		return "", false
	}
	return string(m.scratch[:n]), true
}

// AppendHeader appends the first value of the named header to dst without
// making a string, and reports whether there is one.
func (m *Message) AppendHeader(dst []byte, name string) ([]byte, bool) {
	n := m.headerAt(name, 0)
	if n < 0 {
		return dst, false
	}
	return append(dst, m.scratch[:n]...), true
}

// HeaderValues returns all values of the named header, in the order in which
// they were sent; nil when it is absent.
func (m *Message) HeaderValues(name string) []string {
	var values []string
	for {
		n := m.headerAt(name, len(values))
		if n < 0 {
			return values
		}
		values = append(values, string(m.scratch[:n]))
	}
}

// Headers iterates over all headers, a name with several values several times.
func (m *Message) Headers() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for rest := m.headers(); len(rest) > 0; {
			var line []byte
			line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
			name, value, _ := bytes.Cut(line, []byte(": "))
			if !yield(string(name), string(value)) {
				return
			}
		}
	}
}

// headerAt puts the index-th value of a header into scratch and returns its
// length, -1 when there is none.
func (m *Message) headerAt(name string, index int) int {
	n := abiHeader(name, index, m.scratch)
	if n > len(m.scratch) {
		m.scratch = make([]byte, max(n, 256))
		n = abiHeader(name, index, m.scratch)
	}
	return n
}

// headers returns a block of its own: the body of the loop may use scratch.
func (m *Message) headers() []byte {
	block := make([]byte, max(abiHeaders(nil), 0))
	return block[:max(abiHeaders(block), 0)]
}
