package pipeline

import (
	"container/heap"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A message of a batch pipeline that has to wait for its next attempt is
// parked: a copy of it goes into the output stream, in the same atomic batch
// as everything else, and the line goes on. One subject holds one parked
// message; what replaces it is its next copy, or an empty mark that it is done
// and that expires. (Message schedules would need a stream that discards old.)
const (
	hdrDue      = "Mqrun-Due" // unix ms
	hdrAttempts = "Mqrun-Attempts"
	hdrTime     = "Mqrun-Time" // when the original was stored, unix ns
	doneTTL     = "1s"
)

func parkSubject(out, pipeline string) string {
	return "mqrun." + out + ".retry." + pipeline + "." + partition
}

// parkedMsg is the copy to park. The original's control headers are renamed as
// in a dead letter, or the server would obey them.
func parkedMsg(subject string, s *slot, failed int, due time.Time) *nats.Msg {
	h := nats.Header{}
	for name, values := range s.msg.Header {
		switch {
		case hasPrefixFold(name, prefixOrig):
			h[name] = values
		case hasPrefixFold(name, prefixOurs):
		case hasPrefixFold(name, prefixNats):
			h[prefixOrig+name] = values
		default:
			h[name] = values
		}
	}
	h["Nats-Rollup"] = []string{"sub"}
	h["Nats-TTL"] = []string{"never"}
	h[hdrDue] = []string{strconv.FormatInt(due.UnixMilli(), 10)}
	h[hdrAttempts] = []string{strconv.Itoa(failed)}
	h[hdrSubject] = []string{s.subject}
	h[hdrTime] = []string{strconv.FormatInt(s.info.Time.UnixNano(), 10)}
	return &nats.Msg{Subject: subject + "." + strconv.FormatUint(s.info.Sequence, 10), Header: h, Data: s.msg.Data}
}

// doneMsg takes a parked message away.
func doneMsg(subject string, sequence uint64) *nats.Msg {
	return &nats.Msg{Subject: subject + "." + strconv.FormatUint(sequence, 10), Header: nats.Header{"Nats-Rollup": {"sub"}, "Nats-TTL": {doneTTL}}}
}

// parked is a message that waits; the copy stays in the stream until it is due.
type parked struct {
	sequence uint64
	due      time.Time
}

// parking orders them by due time.
type parking []parked

func (h parking) Len() int           { return len(h) }
func (h parking) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h parking) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *parking) Push(x any)        { *h = append(*h, x.(parked)) }
func (h *parking) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// readParked lists what was parked up to the checkpoint. A server that has not
// heard of that one yet would leave some out.
func readParked(ctx context.Context, js jetstream.JetStream, out, subject string, ckpt checkpoint) (parking, error) {
	var h parking
	current := false
	c, err := js.OrderedConsumer(ctx, out, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject + ".*", ckpt.subject}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, HeadersOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("read parked messages of %s: %w", out, err)
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read parked messages of %s: %w", out, err)
	}
	for left := info.NumPending; left > 0; {
		batch, err := c.Fetch(int(min(left, 500)), jetstream.FetchMaxWait(flushWait))
		if err != nil {
			return nil, fmt.Errorf("read parked messages of %s: %w", out, err)
		}
		got := uint64(0)
		for m := range batch.Messages() {
			got++
			if m.Subject() == ckpt.subject {
				meta, err := m.Metadata()
				current = err == nil && meta.Sequence.Stream >= ckpt.fence
				continue
			}
			due, err := strconv.ParseInt(m.Headers().Get(hdrDue), 10, 64)
			if err != nil {
				continue // the mark that it is done
			}
			subj := m.Subject()
			seq, err := strconv.ParseUint(subj[strings.LastIndexByte(subj, '.')+1:], 10, 64)
			if err == nil {
				h = append(h, parked{sequence: seq, due: time.UnixMilli(due)})
			}
		}
		if err := batch.Error(); err != nil {
			return nil, fmt.Errorf("read parked messages of %s: %w", out, err)
		}
		if got == 0 {
			break // expired meanwhile
		}
		left -= min(left, got)
	}
	if !current {
		return nil, fmt.Errorf("read parked messages of %s: the server does not have the checkpoint at %d yet", out, ckpt.fence)
	}
	heap.Init(&h)
	return h, nil
}

// unpark reads the copy of a message that is due.
func unpark(ctx context.Context, js jetstream.JetStream, out, subject string, sequence uint64) (*jetstream.RawStreamMsg, error) {
	st, err := js.Stream(ctx, out)
	if err != nil {
		return nil, err
	}
	return st.GetLastMsgForSubject(ctx, subject+"."+strconv.FormatUint(sequence, 10))
}
