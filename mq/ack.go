package mq

import (
	"fmt"
	"strconv"
	"strings"
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
	n, rest, more := 0, reply, true
	for more && n < len(tok) {
		tok[n], rest, more = strings.Cut(rest, ".")
		n++
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
		v, err := strconv.ParseUint(tok[at+2+i], 10, 64)
		if err != nil {
			return AckInfo{}, fmt.Errorf("parse ack subject %q: %q is not a number", reply, tok[at+2+i])
		}
		num[i] = v
	}
	a.Deliveries, a.Sequence, a.ConsumerSequence, a.Pending = num[0], num[1], num[2], num[4]
	a.Time = time.Unix(0, int64(num[3]))
	return a, nil
}
