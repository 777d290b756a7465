package config

import (
	"fmt"

	"github.com/mqrun/mqrun/subject"
)

// stream checks one declared stream against the server's, mqrun's and the
// other declared ones: the server takes no two streams over one subject.
func (l *loader) stream(c *Config, s *Stream) {
	at := func(keys ...string) []string { return append([]string{"streams", s.Name}, keys...) }
	if len(s.Subjects) == 0 && l.index.has(at("subjects")...) && !l.broken[join(at("subjects"))] {
		l.complain("", "the list is empty", at("subjects")...)
	}
	for i, a := range s.Subjects {
		path := l.item(i, at("subjects")...)
		l.overlaps(s.Subjects[:i], a, path)
		for _, other := range sorted(c.Streams) {
			for _, b := range c.Streams[other].Subjects {
				if other < s.Name && a != "" && b != "" && subject.Overlap(a, b) {
					l.complain("", fmt.Sprintf("%s overlaps %s of the stream %q", quote(a), quote(b), other), path...)
				}
			}
		}
	}
	if s.MaxMsgSize > c.Server.MaxPayload-64*kib {
		l.complain("", fmt.Sprintf("%s is more than server.max_payload less 64KiB for headers, %s", sizeText(s.MaxMsgSize), sizeText(c.Server.MaxPayload-64*kib)), at("max_msg_size")...)
	}
	if s.MaxMsgSize == 0 {
		s.MaxMsgSize = c.Server.MaxPayload - 64*kib
	}
	if s.MaxBytes > c.Server.MaxBytes {
		l.complain("", fmt.Sprintf("%s is more than server.max_bytes, %s", sizeText(s.MaxBytes), sizeText(c.Server.MaxBytes)), at("max_bytes")...)
	}
	if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
		l.complain("", fmt.Sprintf("%s is less than duplicate_window, %s: a repeated message would be stored twice", span(s.MaxAge), span(s.DuplicateWindow)), at("max_age")...)
	}
	if s.MaxAge == 0 {
		return
	}
	for _, name := range sorted(c.Pipelines) {
		for _, from := range c.Pipelines[name].From {
			if s.holds(from) {
				c.Warnings = append(c.Warnings, l.index.problem(fmt.Sprintf("the pipeline %q reads this stream: what it has not handled after %s is gone without a trace", name, span(s.MaxAge)), "", at("max_age")))
				break
			}
		}
	}
}

// holds reports whether some message that the filter matches is in the stream.
func (s *Stream) holds(filter string) bool {
	for _, a := range s.Subjects {
		if a != "" && filter != "" && subject.Overlap(a, filter) {
			return true
		}
	}
	return false
}

// covers reports whether every message that the filter matches is in the stream.
func (s *Stream) covers(filter string) bool {
	for _, a := range s.Subjects {
		if a != "" && subject.Covers(a, filter) {
			return true
		}
	}
	return false
}

// overlaps complains when an entry meets an earlier one of its list.
func (l *loader) overlaps(earlier []string, s string, path []string) {
	for _, e := range earlier {
		switch {
		case s == "" || e == "" || !subject.Overlap(e, s):
			continue
		case e == s:
			l.complain("", quote(s)+" is listed twice", path...)
		default:
			l.complain("", fmt.Sprintf("%s overlaps %s of the same list", quote(s), quote(e)), path...)
		}
		return
	}
}

// inputs checks what a pipeline reads.
func (l *loader) inputs(c *Config, p *Pipeline) {
	for i, from := range p.From {
		path := l.item(i, "pipelines", p.Name, "from")
		if from == "" {
			continue
		}
		l.overlaps(p.From[:i], from, path)
		l.whole(c, from, path)
	}
}

// deadLetter checks where a pipeline's dead letters go.
func (l *loader) deadLetter(c *Config, p *Pipeline) {
	d, path := p.DeadLetter, []string{"pipelines", p.Name, "dead_letter"}
	if d == DeadLetterNone {
		c.Warnings = append(c.Warnings, l.index.problem("none waives a promise: a message that fails for good is acked, counted and logged, and then it is gone", "", path))
		return
	}
	if d == "" {
		return
	}
	for _, from := range p.From {
		if from != "" && subject.Match(from, d) {
			l.complain("", fmt.Sprintf("%s lies in the pipeline's own from, %s: each dead letter would come back", quote(d), quote(from)), path...)
			return
		}
	}
	for _, name := range sorted(c.Streams) {
		if c.Streams[name].holds(d) {
			l.complain("", fmt.Sprintf("%s lies in the stream %q; dead letters go to MQRUN_DLQ", quote(d), name), path...)
		}
	}
	if subject.Match(deadLetters, d) {
		return
	}
	for _, name := range sorted(c.Pipelines) {
		for i, from := range c.Pipelines[name].From {
			if name != p.Name && from != "" && from != d && subject.Match(from, d) {
				l.complain("", fmt.Sprintf("%s takes in the dead letters of %q (%s), which lie in another stream; read them by name or narrow this", quote(from), p.Name, quote(d)), l.item(i, "pipelines", name, "from")...)
			}
		}
	}
}
