package mq

import (
	"fmt"
	"time"
)

// AckInfo is what JetStream tells about a delivery in its ack subject.
type AckInfo struct {
	Stream, Consumer string
	// Deliveries counts this delivery too. It is not durable: a killed server
	// may deliver again with 1.
	Deliveries uint64
	// Sequence is the message's place in the stream, ConsumerSequence the
	// delivery's place in the consumer.
	Sequence, ConsumerSequence uint64
	Time                       time.Time // when the message was stored
	Pending                    uint64    // messages of the consumer still behind this one
}

// ParseAck reads an ack subject of either form: nine tokens, or eleven and
// more with a domain and an account hash in front (server/consumer.go,
// ackReplyInfo).
func ParseAck(reply string) (AckInfo, error) {
	var tok [12]string
	n, from := 0, 0
	for i := 0; i <= len(reply) && n < len(tok); i++ {
		if i == len(reply) || reply[i] == '.' {
			tok[n], from = reply[from:i], i+1
			n++
		}
	}
	at := 2
	switch {
	case n < 9 || tok[0] != "$JS" || tok[1] != "ACK":
		return AckInfo{}, fmt.Errorf("parse ack subject %q: not a JetStream delivery", reply)
	case n >= 11:
		at = 4
	}
	a := AckInfo{Stream: tok[at], Consumer: tok[at+1]}
	var num [5]uint64
	for i := range num {
		v, ok := digits(tok[at+2+i])
		if !ok {
			return AckInfo{}, fmt.Errorf("parse ack subject %q: %q is not a number", reply, tok[at+2+i])
		}
		num[i] = v
	}
	a.Deliveries, a.Sequence, a.ConsumerSequence, a.Pending = num[0], num[1], num[2], num[4]
	a.Time = time.Unix(0, int64(num[3]))
	return a, nil
}

// digits reads a number that the server wrote: all of them fit 19 digits.
func digits(s string) (n uint64, ok bool) {
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = 10*n + uint64(d)
	}
	return n, 0 < len(s) && len(s) <= 19
}
