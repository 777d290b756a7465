package meter

import "fmt"

// Error says why a module is not rewritten.
type Error struct {
	// Offset into the module of what is wrong.
	Offset int
	// Reason in lower case, to follow the name of a file.
	Reason string
	// Malformed: these bytes are no valid module. False: the module may be
	// valid, but it uses what cannot be bounded here.
	Malformed bool
}

func (e *Error) Error() string { return fmt.Sprintf("%s (at byte %#x)", e.Reason, e.Offset) }

func malformed(at int, format string, args ...any) *Error {
	return &Error{Offset: at, Reason: fmt.Sprintf(format, args...), Malformed: true}
}

func refused(at int, format string, args ...any) *Error {
	return &Error{Offset: at, Reason: fmt.Sprintf(format, args...)}
}
