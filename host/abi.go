package host

import "strings"

// This file is the specification of plugin ABI v1. The guest pulls: it owns all
// its memory, every pointer is valid only during the host call, and nothing is
// allocated or freed across the border.

// The modules that a plugin may import from.
const (
	ABIv1      = "mqrun_v1"
	wasiModule = "wasi_snapshot_preview1"
	envModule  = "env" // AssemblyScript
)

// The exports that the host knows. mq_* is reserved.
const (
	ExportMemory     = "memory"
	ExportHandle     = "mq_handle"
	ExportInit       = "mq_init"
	ExportInitialize = "_initialize"
	exportStart      = "_start"
)

// Verdicts: what mq_handle returns. Anything else counts as Retry.
const (
	OK     int32 = 0 // publish the staged outputs, then ack
	Retry  int32 = 1 // deliver again, after retry_after or by the pipeline's policy
	Reject int32 = 2 // dead letter now
	Drop   int32 = 3 // ack and publish nothing
)

// Errno: what a host function returns when it did not do what was asked.
const (
	ErrnoAbsent      int32 = -1
	ErrnoLimit       int32 = -2
	ErrnoInvalid     int32 = -3
	ErrnoNotAllowed  int32 = -4
	ErrnoConflict    int32 = -5
	ErrnoUnavailable int32 = -6
)

// Fields of meta.
const (
	MetaSubject = iota
	MetaStream
	MetaPipeline
	MetaPlugin
)

// Fields of meta_i64.
const (
	MetaSequence = iota
	MetaAttempt
	MetaAttempts
	MetaTime
	MetaPending
	MetaMillisLeft
)

// Levels of log.
const (
	LogDebug = iota
	LogInfo
	LogWarn
	LogError
)

// Limits that no setting moves.
const (
	MaxRetryAfterMillis = 24 * 60 * 60 * 1000 // retry_after is cut to a day
	MaxHeaders          = 128                 // emit_headers before one emit
	MaxLogLine          = 4 << 10             // bytes of one logged line
	MaxPanicText        = 4 << 10             // bytes of stderr kept as the panic text
	MaxLogTail          = 2 << 10             // bytes of log kept for a dead letter
	Piece               = 64 << 10            // bytes that a host function moves between two looks at the deadline
)

// Param is a parameter of a Func. Type is i32, i64, f32 or f64.
type Param struct{ Name, Type string }

// Func is one function at the border.
type Func struct {
	Name    string
	Params  []Param
	Result  string // "" = none
	Meaning string
}

// Signature in the form "(i32, i32) -> i32".
func (f Func) Signature() string {
	types := make([]string, len(f.Params))
	for i, p := range f.Params {
		types[i] = p.Type
	}
	if f.Result == "" {
		return signature(types, nil)
	}
	return signature(types, []string{f.Result})
}

func signature(params, results []string) string {
	out := "()"
	if len(results) == 1 {
		out = results[0]
	} else if len(results) > 1 {
		out = "(" + strings.Join(results, ", ") + ")"
	}
	return "(" + strings.Join(params, ", ") + ") -> " + out
}

// fn describes a function; a parameter without ":type" is i32.
func fn(name, params, result, meaning string) Func {
	f := Func{Name: name, Result: result, Meaning: meaning}
	for _, p := range strings.Fields(params) {
		name, typ, ok := strings.Cut(p, ":")
		if !ok {
			typ = "i32"
		}
		f.Params = append(f.Params, Param{Name: name, Type: typ})
	}
	return f
}

// Exports are the functions that the host calls, in the order in which it does.
func Exports() []Func {
	return []Func{
		fn(ExportInitialize, "", "", "start of a WASI reactor; called first, once per instance, when present"),
		fn(ExportInit, "", "i32", "optional, once per instance after _initialize; nonzero = the plugin does not load (text by reason)"),
		fn(ExportHandle, "size", "i32", "required; size is the payload's length in bytes; returns a verdict"),
	}
}

// Imports are the functions of mqrun_v1. Inside v1 functions are only added.
//
// Read rule: the host copies min(len, cap) bytes and returns the full length;
// cap 0 asks for the size. A pointer outside the guest's memory ends the call,
// unless its length is 0. Outside a message (_initialize, mq_init) the payload
// is empty, meta gives the plugin's name alone and emit is -3.
//
// kv calls take effect at once and are repeated when the message is. They are
// -4 for a bucket that allow.kv does not name, -3 for a key that is none, -2
// for a value that is too large or a bucket that is full, and -6 when the
// server does not answer.
func Imports() []Func {
	return []Func{
		fn("input", "ptr cap", "i32", "copies the payload; returns its length"),
		fn("meta", "field ptr cap", "i32", "field 0 subject, 1 stream, 2 pipeline, 3 plugin; -1 for any other"),
		fn("meta_i64", "field", "i64", "field 0 stream sequence, 1 attempt (from 1), 2 attempts allowed, 3 timestamp in unix ns, 4 pending, 5 ms left; -1 for any other"),
		fn("header", "name nlen index ptr cap", "i32", "the index-th value of a header, ASCII case-insensitive; -1 when absent"),
		fn("headers", "ptr cap", "i32", "all headers, as \"Name: value\\r\\n\" in the order of their names"),
		fn("config", "key klen ptr cap", "i32", "a key of the plugin's config; key length 0 = all as JSON, every scalar a string; -1 when absent"),
		fn("emit", "subj slen ptr len", "i32", "stages one output and takes the pending headers, whether it succeeds or not; subject length 0 = the next step or the pipeline's to; 0 or errno; once one failed, OK counts as RETRY"),
		fn("emit_header", "name nlen val vlen", "i32", "adds a header to the next emit; 0, -2 when there are too many, -3 for a bad name or value, -4 for Nats-* and Mqrun-*"),
		fn("reason", "ptr len", "", "text for RETRY and REJECT; the last one wins; cut at limits.reason_bytes and made header-safe"),
		fn("retry_after", "ms", "", "delay for RETRY, unsigned, at most 24 h; wins over the pipeline's policy"),
		fn("log", "level ptr len", "", "level 0 debug, 1 info, 2 warn, 3 error"),
		fn("kv_get", "bucket blen key klen ptr cap", "i32", "a value of a JetStream KV bucket named in allow.kv; -1 when absent; the value of a size call is held until the next kv call"),
		fn("kv_revision", "", "i64", "the revision that the last kv call saw or made; 0 when there was none"),
		fn("kv_put", "bucket blen key klen ptr len", "i32", "sets a key"),
		fn("kv_create", "bucket blen key klen ptr len", "i32", "sets a key that does not exist; -5 when it does"),
		fn("kv_update", "bucket blen key klen ptr len revision:i64", "i32", "compare and set; -5 when the revision moved"),
		fn("kv_delete", "bucket blen key klen", "i32", "deletes a key"),
	}
}
