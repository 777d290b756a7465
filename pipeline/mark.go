package pipeline

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	markEvery = 10 * time.Second // between looks at a consumer that has work
	markRuns  = 4096             // of settled sequences, and it is looked at sooner
)

// mark is what a pipeline knows of its position in one input stream, should
// the consumer that keeps it be deleted: nothing that was settled comes again
// then, and nothing else is skipped. Messages that another process settled
// since the last look at the consumer may come again.
type mark struct {
	made   time.Time // of the consumer
	floor  uint64    // everything up to here is settled: the server has said so
	done   ranges    // settled here, above it
	top    uint64    // the highest that came
	again  uint64    // up to here a message may have come before, from an earlier consumer
	news   int       // settled since the last look
	looked time.Time
}

// settle notes that a message is settled.
func (k *mark) settle(sequence uint64) {
	k.news++
	if sequence > k.floor {
		k.done.add(sequence)
	}
}

// raise takes over the server's word.
func (k *mark) raise(floor uint64) {
	if floor > k.floor {
		k.floor = floor
		k.done.above(floor)
	}
	if k.floor >= k.again {
		k.again = 0
	}
}

// came takes a message that comes. It tells whether it may have come before, and
// whether it is settled.
func (k *mark) came(sequence uint64) (before, settled bool) {
	k.top = max(k.top, sequence)
	if sequence > k.again {
		return false, false
	}
	return true, sequence <= k.floor || k.done.has(sequence)
}

// meet takes a delivery to what is known of its place.
func (p *pipeline) meet(src *source, sequence uint64) (ident *identity, before, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, settled = src.known.came(sequence)
	return src.ident, before, settled
}

// skip acks a message that was settled under an earlier consumer. Without a
// confirmation: if the ack is lost the message comes once more.
func (p *pipeline) skip(src *source, m *nats.Msg) {
	if err := p.broker.out.Publish(m.Reply, ackBody); err != nil {
		p.log.Debug("ack again later", "stream", src.stream, "error", err)
	}
	p.counts.skipped.Add(1)
	src.pull.Credit(1)
}

// look asks for the consumer's ack floor when much was settled since the last
// time. The answer arrives at looked.
func (p *pipeline) look(i int, src *source, now time.Time) {
	p.mu.Lock()
	k := &src.known
	due := k.news > 0 && now.Sub(k.looked) >= markEvery || len(k.done) >= markRuns && now.Sub(k.looked) >= tickEvery
	if due {
		k.news, k.looked = 0, now
	}
	p.mu.Unlock()
	if due {
		_ = p.broker.out.PublishRequest("$JS.API.CONSUMER.INFO."+src.stream+"."+src.consumer, p.lookReply(i), nil)
	}
}

// lookToken stands where replies have the slot.
const lookToken = "look"

// looked reads the answer of look.
func (p *pipeline) looked(src *source, data []byte) {
	var info struct {
		jetstream.ConsumerInfo
		Error *jetstream.APIError `json:"error"`
	}
	if json.Unmarshal(data, &info) != nil {
		return
	}
	p.mu.Lock()
	same := info.Created.Equal(src.known.made)
	if same {
		src.known.raise(info.AckFloor.Stream)
	}
	p.mu.Unlock()
	if same {
		p.remember(src)
	}
	if info.Error != nil && (info.Error.ErrorCode == jetstream.JSErrCodeConsumerNotFound || info.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound) || info.Error == nil && !same {
		p.lookAfter(src)
	}
}
