//go:build !unix

package host

import "time"

// cpuTime is the wall clock here.
func cpuTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
