//go:build unix

package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what this process has had of the processor.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return time.Duration(1<<63 - 1) // then the wall clock alone counts
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
