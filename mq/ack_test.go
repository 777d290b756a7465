package mq

import (
	"testing"
	"time"
)

func TestParseAck(t *testing.T) {
	want := AckInfo{Stream: "S", Consumer: "c", Deliveries: 2, Sequence: 17, ConsumerSequence: 19, Time: time.Unix(0, 1700000000000000001), Pending: 5}
	for _, s := range []string{
		"$JS.ACK.S.c.2.17.19.1700000000000000001.5",
		"$JS.ACK.hub.ACCHASH.S.c.2.17.19.1700000000000000001.5",
		"$JS.ACK._.ACCHASH.S.c.2.17.19.1700000000000000001.5.random",
	} {
		if got, err := ParseAck(s); err != nil || got != want {
			t.Errorf("ParseAck(%q) = %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "$JS.ACK.S.c.2.17.19.x.5", "a.b.c.d.e.f.g.h.i", "$JS.ACK.S.c.2.17.19.1", "$JS.ACK.S.c.2..19.1.5", "$JS.ACK.S.c.2.99999999999999999999.19.1.5"} {
		if _, err := ParseAck(s); err == nil {
			t.Errorf("ParseAck(%q) passed", s)
		}
	}
}
