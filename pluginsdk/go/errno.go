package mqrun

import "strconv"

// Errno is why the host refused a call. Compare with [errors.Is].
type Errno int32

// The host's answers; all of them are negative in the plugin ABI.
const (
	ErrAbsent      Errno = -1 // no such value
	ErrLimit       Errno = -2 // over one of the plugin's limits
	ErrInvalid     Errno = -3 // malformed subject or header, or Emit where the pipeline has no `to`
	ErrNotAllowed  Errno = -4 // not named in the plugin's `allow`, or reserved
	ErrConflict    Errno = -5 // somebody else changed it first
	ErrUnavailable Errno = -6 // the host cannot do it now
)

// Error says what the number means and where to look.
func (e Errno) Error() string {
	switch e {
	case ErrAbsent:
		return "absent"
	case ErrLimit:
		return "over the plugin's limits"
	case ErrInvalid:
		return "invalid argument"
	case ErrNotAllowed:
		return "not allowed (see the plugin's allow.publish)"
	case ErrConflict:
		return "conflict"
	case ErrUnavailable:
		return "unavailable"
	}
	return "host error " + strconv.Itoa(int(e))
}

// CallError is a refused host call: what was tried, and the [Errno] that it unwraps to.
type CallError struct {
	Call  string // such as `emit to "quakes.minor"`
	Errno Errno
}

// Error implements error.
func (e *CallError) Error() string { return e.Call + ": " + e.Errno.Error() }

// Unwrap returns the Errno.
func (e *CallError) Unwrap() error { return e.Errno }
