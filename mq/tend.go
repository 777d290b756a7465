package mq

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

const tendEvery = 200 * time.Millisecond

// tend does what a subscription needs besides its handler: it keeps the pulls
// going and the held messages alive, and makes a deleted consumer again.
func (s *subscription) tend(ctx context.Context, done <-chan struct{}) {
	connected := s.q.nc.StatusChanged(nats.CONNECTED)
	defer s.q.nc.RemoveStatusListener(connected)
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	alive := time.NewTicker(s.ackWait / 3)
	defer alive.Stop()
	said := ""
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			s.pull.Tick(now)
		case <-alive.C:
			s.keepAlive()
		case st, ok := <-connected:
			if !ok {
				connected = nil
			} else if st == nats.CONNECTED {
				s.pull.Reconnected()
			}
		case err := <-s.lost:
			said = s.mend(ctx, err, said)
		}
	}
}

// mend makes the consumer again when it is gone. said is what was logged last:
// the same trouble comes back every second while it lasts.
func (s *subscription) mend(ctx context.Context, cause error, said string) string {
	if !errors.Is(cause, ErrConsumerLost) {
		if cause.Error() != said {
			s.log.Error("no messages can be pulled", "error", cause)
		}
		return cause.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	made, err := s.ensureConsumer(ctx)
	switch {
	case err != nil:
		if err.Error() != said && ctx.Err() == nil {
			s.log.Error("the consumer is gone and cannot be made again", "error", err)
		}
		return err.Error()
	case made:
		s.log.Error("the consumer was deleted; it is made again, and all stored messages are delivered")
	}
	return ""
}

// keepAlive tells the server that the held messages are in good hands. They
// would be delivered again while they wait for a slow handler.
func (s *subscription) keepAlive() {
	s.mu.Lock()
	held := append([]*nats.Msg(nil), s.held...)
	s.mu.Unlock()
	for _, m := range held {
		if err := s.q.nc.Publish(m.Reply, []byte("+WPI")); err != nil {
			s.log.Debug("keep message alive", "error", err)
			return
		}
	}
}
