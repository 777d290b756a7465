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
	said, again := "", time.Time{} // the last trouble, and when to look again
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			s.pull.Tick(now)
			if !again.IsZero() && now.After(again) {
				if said = s.mend(ctx, said); said == "" {
					again = time.Time{}
				}
			}
		case <-alive.C:
			s.keepAlive()
		case st, ok := <-connected:
			if !ok {
				connected = nil
			} else if st == nats.CONNECTED {
				s.pull.Reconnected()
			}
		case err := <-s.lost:
			if errors.Is(err, ErrConsumerLost) {
				// The news can come before the consumer is really gone, and a
				// request meanwhile has no answer.
				said, again = s.mend(ctx, said), time.Now().Add(500*time.Millisecond)
			} else if err.Error() != said {
				said = err.Error()
				s.log.Error("no messages can be pulled", "error", err)
			}
		}
	}
}

// mend makes the consumer again if it is gone, and returns what is still wrong,
// or "". said is what was logged before: trouble comes back while it lasts.
func (s *subscription) mend(ctx context.Context, said string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var made bool
	err := s.q.Steady(func() (err error) {
		made, err = s.ensureConsumer(ctx)
		return err
	})
	switch {
	case err != nil:
		if said == "" {
			s.log.Warn("the consumer does not answer", "error", err)
		}
		return err.Error()
	case made:
		s.log.Error("the consumer was deleted; it is made again, and all stored messages are delivered")
		s.pull.Reconnected()
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
