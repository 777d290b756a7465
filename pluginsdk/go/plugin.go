// Package mqrun is the Go SDK for mqrun plugins: a handler gets one message at
// a time and answers with outputs and an error that says what becomes of it.
//
//	func init() { mqrun.Handle(handle) }
//
//	func main() { mqrun.Main() }
//
//	func handle(m *mqrun.Message) error {
//		if len(m.Data()) == 0 {
//			return mqrun.Reject("empty payload")
//		}
//		return m.Emit(bytes.ToUpper(m.Data()))
//	}
//
// Build it with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared. The same
// source builds and tests natively, where [Test] takes the host's place.
//
// What the handler returns is the verdict:
//
//	nil                 outputs are published, then the message is acked
//	Retry, RetryAfter   delivered again after the delay or the pipeline's policy
//	Reject              dead letter now
//	Drop                acked, nothing is published
//	any other error     as Retry, with the error's text as the reason
//
// # Caveats
//
// A handler may run more than once for a message and must emit the same outputs
// in the same order each time, since an output's position is part of its id.
//
// Func main never runs in a plugin: register in func init. One instance handles
// one message at a time; a goroutine that is left running stands still until
// the next message. A panic is not recovered: the host captures its text,
// discards the instance and retries the message.
package mqrun

// plugin is what the author registered and the message that all calls share.
type plugin struct {
	handle func(*Message) error
	init   func() error
	msg    Message
}

// guest is the only one: the exports that the host calls have no receiver.
var guest plugin

// Handle registers the function that handles messages. Call it once, from func
// init; it panics when called twice or with nil.
func Handle(handle func(*Message) error) {
	if handle == nil || guest.handle != nil {
		panic("mqrun: Handle wants one handler, once")
	}
	guest.handle = handle
}

// Init registers a function that runs once in each new instance, before its
// first message; read the plugin's configuration there. When it returns an
// error the plugin does not load and the host shows the text. Call it at most
// once, from func init.
func Init(init func() error) {
	if init == nil || guest.init != nil {
		panic("mqrun: Init wants one function, once")
	}
	guest.init = init
}

// start answers mq_init: 0, or 1 with the reason told to the host.
func (p *plugin) start() int32 {
	if p.handle == nil {
		abiReason("no handler is registered: call mqrun.Handle in func init (func main does not run in a plugin)")
		return 1
	}
	if p.init == nil {
		return 0
	}
	if err := p.init(); err != nil {
		abiReason(err.Error())
		return 1
	}
	return 0
}

// call answers mq_handle.
func (p *plugin) call(size int) int32 {
	p.msg.reset(size)
	return int32(settle(p.handle(&p.msg)))
}
