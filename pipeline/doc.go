// Package pipeline carries messages from subjects through the steps of their
// pipeline to other subjects.
//
// A [Manager] runs one configuration at a time, a generation. Each pipeline
// has a durable consumer on every stream that it reads. A delivery is put into
// a slot, waits for a worker, walks through the steps, and gets a verdict: its
// outputs are published and then the message is acked; or the failed attempt
// is recorded and the message is given back with a delay; or it becomes a dead
// letter. The final word is sent only after the server has confirmed all that
// must be stored before it, and is itself confirmed.
//
// # Caveats
//
// The promise is at-least-once plus deduplication: a message may be handled
// more than once (a crash, a lost connection), and then its outputs carry the
// same ids, which the output stream drops within its duplicate window. A
// handler must emit in the same order for the same message.
//
// An ack that the server confirmed is not on its disk for another 100 ms:
// after a crash messages can be delivered again that were acked.
package pipeline
