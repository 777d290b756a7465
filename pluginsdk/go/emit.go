package mqrun

import "strconv"

// Emit stages an output for the pipeline's next step, after the last one for
// the pipeline's `to`. The data is copied at once. Outputs are published only
// when the handler returns nil.
//
// The error is a [CallError]: ErrLimit over limits.outputs or
// limits.output_bytes, ErrInvalid in the last step of a pipeline without `to`.
// Once an Emit, EmitTo or AddHeader was refused, a handler that returns nil is
// retried nevertheless.
func (m *Message) Emit(data []byte) error {
	if rc := abiEmit("", data); rc < 0 {
		return &CallError{"emit", Errno(rc)}
	}
	return nil
}

// EmitTo stages an output that leaves the pipeline here, for a subject: the
// pipeline's `to` or one that the plugin's allow.publish names, else the error
// is ErrNotAllowed; ErrInvalid when it is no subject or has a wildcard. See
// [Message.Emit] for the rest.
func (m *Message) EmitTo(subject string, data []byte) error {
	if subject == "" {
		return &CallError{`emit to ""`, ErrInvalid}
	}
	if rc := abiEmit(subject, data); rc < 0 {
		return &CallError{"emit to " + strconv.Quote(subject), Errno(rc)}
	}
	return nil
}

// AddHeader adds a header to the next Emit or EmitTo, which takes it whether it
// succeeds or not. The error is a [CallError]: ErrNotAllowed for names that
// begin with Nats- or Mqrun-, ErrInvalid for what no header can hold.
func (m *Message) AddHeader(name, value string) error {
	if rc := abiEmitHeader(name, value); rc < 0 {
		return &CallError{"add header " + strconv.Quote(name), Errno(rc)}
	}
	return nil
}
