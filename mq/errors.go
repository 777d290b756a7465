package mq

import "errors"

// Errors to test for with errors.Is. What is returned wraps them in a text
// that says what was tried, where, and what to do.
var (
	// ErrClosed: the queue was closed before or during the call.
	ErrClosed = errors.New("queue is closed")
	// ErrQueueFull: the stream, or the server, takes no more messages until
	// some are purged. The message is not stored; publish it again later.
	ErrQueueFull = errors.New("queue is full")
	// ErrMessageTooLarge: the message is over the server's or stream's limit.
	ErrMessageTooLarge = errors.New("message is too large")
	// ErrInvalidSubject: the subject or filter is malformed, reserved, or holds
	// a wildcard where none may be.
	ErrInvalidSubject = errors.New("subject is refused")
	// ErrNoStream: no stream holds the subject, so nothing could be stored.
	ErrNoStream = errors.New("no stream holds the subject")
	// ErrForeignStream: a stream that mqrun did not make is in the way.
	ErrForeignStream = errors.New("stream belongs to somebody else")
	// ErrStoreLocked: another process, or another queue of this one, has the
	// store directory open.
	ErrStoreLocked = errors.New("store is in use")
	// ErrStoreNewer: the store was written by a newer version.
	ErrStoreNewer = errors.New("store is of a newer format")
	// ErrListen: the listen address cannot be used.
	ErrListen = errors.New("listen address cannot be used")
	// ErrNotRunning: nobody answers on the socket.
	ErrNotRunning = errors.New("start mqrun run, or pass -s")
)
