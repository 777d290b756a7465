package host

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is returned by a Plugin or Runtime after Close.
var ErrClosed = errors.New("plugin is closed")

// Words of CallError.Reason.
const (
	ReasonTrap    = "trap"
	ReasonTimeout = "timeout"
	ReasonFuel    = "fuel"
	ReasonMemory  = "memory"
	ReasonLimit   = "limit"
	ReasonExit    = "exit"
	ReasonABI     = "abi"
)

// Words of Result.EmitFailed, ReasonLimit aside.
const (
	EmitFailed    = "emit"
	EmitForbidden = "forbidden"
)

// CallError is a call that gave no verdict. The instance is gone.
type CallError struct {
	Reason string // one of the Reason words
	Text   string // one line for people, which begins with the plugin's name
	Guest  string // panic text or last lines of stderr, as the guest wrote them
	Trace  string // the guest's stack, and the host's when the host is at fault

	noRoom bool // the host's memory was full: it did not even start
}

func (e *CallError) Error() string { return e.Text }

// fault is how a host function ends a call: it is thrown through the guest.
type fault struct {
	reason string
	text   string
	guest  string
	stack  string
	where  bool // the guest's trace says where it was stopped
}

func (f *fault) Error() string { return f.text }

// frames splits wazero's error into its first line and the guest's stack.
func frames(err error) (text, trace string) {
	text, trace, _ = strings.Cut(err.Error(), "\nwasm stack trace:\n")
	text = strings.TrimPrefix(text, "wasm error: ")
	text = strings.TrimSuffix(text, " (recovered by wazero)")
	lines := strings.Split(trace, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(l, "\t"), ".")
	}
	return text, strings.TrimSpace(strings.Join(lines, "\n"))
}

// place is the first function of a trace that is not a language's runtime.
func place(trace string) string {
	first := ""
	short := func(name string) string { return headerSafe([]byte(name), 256) } // it can be anything
	for l := range strings.Lines(trace) {
		name := frameName(strings.TrimRight(l, "\n"))
		if name == "" || strings.HasPrefix(l, "\t") {
			continue
		}
		if first == "" {
			first = short(name)
		}
		if !machinery(name) {
			return short(name)
		}
	}
	return first
}

// frameName cuts the signature off a frame such as "main.(*T).f(i32,i64) i32".
func frameName(l string) string {
	for i := range len(l) {
		if l[i] != '(' {
			continue
		}
		inner, _, ok := strings.Cut(l[i+1:], ")")
		if ok && isTypes(inner) {
			return l[:i]
		}
	}
	return ""
}

func isTypes(s string) bool {
	if s == "" {
		return true
	}
	for _, t := range strings.Split(s, ",") {
		switch t {
		case "i32", "i64", "f32", "f64", "v128", "funcref", "externref":
		default:
			return false
		}
	}
	return true
}

func machinery(name string) bool {
	for _, p := range []string{"runtime.", "wasm_", "gosave", "core::", "std::", "alloc::", "rust_", "__rust", "__wasi", "~lib/", "mqrun:", "abort", "exit", "_exit", ABIv1, wasiModule, envModule + "."} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// panicLine is the line of a guest's stderr that says what went wrong.
func panicLine(stderr string) string {
	last, lines := "", strings.Split(stderr, "\n")
	for i, l := range lines {
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		last = l
		if strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") || strings.Contains(l, "panicked at") {
			// Rust puts the message on the line after the place.
			if strings.HasSuffix(l, ":") && i+1 < len(lines) {
				l += " " + strings.TrimSpace(lines[i+1])
			}
			return l
		}
	}
	return last
}

// goPlace finds the guest function in the stack that a Go guest printed: the
// machine's stack ends in the runtime by the time Go gives up.
func goPlace(stderr string) string {
	_, rest, ok := strings.Cut(stderr, "[running]:\n")
	if !ok {
		return ""
	}
	for l := range strings.Lines(rest) {
		if l == "\n" {
			break
		}
		if strings.HasPrefix(l, "\t") || strings.HasPrefix(l, "panic(") || strings.HasPrefix(l, "runtime.") {
			continue
		}
		if i := strings.LastIndexByte(l, '('); i > 0 {
			return headerSafe([]byte(l[:i]), 256)
		}
	}
	return ""
}

// inside is " in NAME", or nothing.
func inside(name string) string {
	if name == "" {
		return ""
	}
	return " in " + name
}

// prefix says which message of which plugin.
func prefix(plugin string, m *Message) string {
	if m == nil {
		return plugin + ":"
	}
	if m.Stream == "" {
		return fmt.Sprintf("%s: message %d", plugin, m.Sequence)
	}
	return fmt.Sprintf("%s: message %d of %s", plugin, m.Sequence, m.Stream)
}

// outOfMemory recognises what Go, C++ and Rust print before they give up.
func outOfMemory(stderr string) bool {
	return strings.Contains(stderr, "out of memory") || strings.Contains(stderr, "std::bad_alloc") ||
		strings.Contains(stderr, "memory allocation of")
}
