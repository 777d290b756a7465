package host

import (
	"testing"
	"time"
)

func TestPatienceCountsTheProcessor(t *testing.T) {
	const limit = time.Hour
	for _, tt := range []struct {
		name         string
		worked, gone time.Duration
		over         bool
	}{
		{"just begun", 0, 0, false},
		{"the time is over, but others had the processor", limit / 2, 2 * limit, false},
		{"worked as long", limit + time.Minute, 2 * limit, true},
		{"waited ten times as long", 0, 10*limit + time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPatience(limit)
			defer p.Stop()
			p.cpu, p.began = cpuTime()-tt.worked, time.Now().Add(-tt.gone)
			if got := p.over(); got != tt.over {
				t.Errorf("over: %v, want %v", got, tt.over)
			}
		})
	}
}
