package mqrun

// Level is how much a log line matters.
type Level int32

// The levels and their numbers in the plugin ABI.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Log writes one line to the host's log, under the names of the plugin and the
// pipeline. Lines of one call over limits.log_lines or limits.log_bytes are
// dropped. The last 2 KiB go with a dead letter. What a plugin prints to
// standard output or error is logged too.
func Log(level Level, text string) { abiLog(level, text) }
