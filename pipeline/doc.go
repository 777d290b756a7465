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
// An ordered pipeline keeps messages of one key in line: the next one begins
// when the outputs of the one before are stored, and a failed one is tried again
// in place. A lease lets one process at a time run it.
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
//
// Order is kept from one input stream to the output stream, across stops,
// crashes and lost connections, and as long as no more is unacked than twice
// max_in_flight. A process that has lost its lease forsakes what it has in
// work; the next one gets that again after ack_wait.
package pipeline
