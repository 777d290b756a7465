package host

import "time"

// patience is a limit on work that nothing can measure from outside, such as
// compiling. It is over when that much time has passed and the process has had
// as much of the processor: on a busy machine, and under the race detector,
// seconds of work take minutes.
type patience struct {
	*time.Timer
	limit time.Duration
	began time.Time
	cpu   time.Duration // of the process, when it began
}

// most is how many times the limit it may take on the wall clock.
const most = 10

func newPatience(limit time.Duration) *patience {
	return &patience{time.NewTimer(limit), limit, time.Now(), cpuTime()}
}

// over is asked when the timer has fired. It sets it again when it says no.
func (p *patience) over() bool {
	left := p.limit - (cpuTime() - p.cpu)
	if left <= 0 || time.Since(p.began) > most*p.limit {
		return true
	}
	p.Reset(left)
	return false
}
