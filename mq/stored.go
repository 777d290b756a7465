package mq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Stored is a message as its stream holds it, with nothing added.
type Stored struct {
	Subject  string
	Sequence uint64
	Header   nats.Header
	Data     []byte
	Time     time.Time
}

// ReadStored reads the message at a sequence. One that is not there is
// jetstream.ErrMsgNotFound. A direct get, which the client library prefers,
// adds headers of its own to those of the message, and theirs may have the
// same names.
func ReadStored(ctx context.Context, nc *nats.Conn, stream string, sequence uint64) (*Stored, error) {
	wrap := func(err error) error {
		return fmt.Errorf("read message %d of stream %s: %w", sequence, stream, err)
	}
	body, err := json.Marshal(map[string]uint64{"seq": sequence})
	if err != nil {
		return nil, wrap(err)
	}
	reply, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, wrap(err)
	}
	var r struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return nil, wrap(err)
	}
	switch {
	case r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, wrap(jetstream.ErrMsgNotFound)
	case r.Error != nil:
		return nil, wrap(r.Error)
	case r.Message == nil:
		return nil, wrap(errors.New("the server's answer holds none"))
	}
	m := &Stored{Subject: r.Message.Subject, Sequence: r.Message.Sequence, Data: r.Message.Data, Time: r.Message.Time}
	if len(r.Message.Header) > 0 {
		if m.Header, err = nats.DecodeHeadersMsg(r.Message.Header); err != nil {
			return nil, wrap(err)
		}
	}
	return m, nil
}
