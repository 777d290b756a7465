package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/subject"
)

// Replay is what is published for one dead letter.
type Replay struct {
	Letter  Letter   `json:"letter"`
	Subject string   `json:"subject"` // published to
	ID      string   `json:"id"`
	Size    int      `json:"size"`
	Warning string   `json:"warning,omitempty"`
	Readers []string `json:"readers,omitempty"` // that get the message besides the pipeline that failed

	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence,omitempty"` // it got; 0 before it is sent
	// Duplicate: an earlier attempt had stored it already.
	Duplicate bool `json:"duplicate,omitempty"`

	msg    *nats.Msg
	before []byte
	edited bool
}

// Payload is what will be sent; Edit replaces it.
func (r *Replay) Payload() []byte { return r.msg.Data }

// Edit replaces the payload.
func (r *Replay) Edit(data []byte) {
	r.before, r.edited = r.msg.Data, true
	r.msg.Data, r.Size = data, len(data)
}

// Prepare makes the message that replays a dead letter and sends nothing. On a
// stream of ours it goes to the pipeline that failed alone, which sees it
// under its original subject. A stranger's stream holds no subject for that:
// there it goes to the original one, and all that read it are named.
func (l *Letters) Prepare(ctx context.Context, sequence uint64) (*Replay, error) {
	d, err := l.Read(ctx, sequence)
	if err != nil {
		return nil, err
	}
	r, err := l.prepare(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("replay dead letter %d: %w", sequence, err)
	}
	return r, nil
}

func (l *Letters) prepare(ctx context.Context, d Letter) (*Replay, error) {
	if d.Pipeline == "" || d.Stream == "" || d.Subject == "" {
		return nil, errors.New("it lacks the headers that say where it came from; mqrun did not write it")
	}
	st, err := l.js.Stream(ctx, d.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("the stream %s that it came from is gone", d.Stream)
	}
	if err != nil {
		return nil, err
	}
	info := st.CachedInfo()
	m, err := l.restore(ctx, d)
	if err != nil {
		return nil, err
	}
	h, data := m.Header, m.Data
	r := &Replay{Letter: d, Stream: d.Stream, ID: "replay:" + l.created + ":" + strconv.FormatUint(d.Sequence, 10), Size: len(data)}
	r.Letter.Header, r.Letter.Data = nil, nil
	redo := redoSubject(d.Stream, d.Pipeline)
	readers, err := readersOfSubject(ctx, st, redo)
	if err != nil {
		return nil, err
	}
	switch {
	case mq.Ours(&info.Config) && holds(info.Config.Subjects, redo):
		if len(readers) == 0 {
			return nil, fmt.Errorf("pipeline %s does not read %s: is it configured and mqrun running? The message would wait there", d.Pipeline, redo)
		}
		r.Subject = redo
		h[hdrSubject] = []string{d.Subject}
		for name, values := range d.Header { // for the next dead letter, if there is one
			if hasPrefixFold(name, prefixOrig) {
				h[name] = values
			}
		}
	case !holds(info.Config.Subjects, d.Subject):
		return nil, fmt.Errorf("the stream %s that it came from no longer holds %s", d.Stream, d.Subject)
	default:
		r.Subject = d.Subject
		if readers, err = readersOfSubject(ctx, st, d.Subject); err != nil {
			return nil, err
		}
		r.Readers = slices.DeleteFunc(readers, func(s string) bool { return s == durable(d.Pipeline) })
		r.Warning = fmt.Sprintf("stream %s is not mqrun's, so the message is published to %s again", d.Stream, d.Subject)
		if len(r.Readers) > 0 {
			r.Warning += " and these consumers get it too: " + strings.Join(r.Readers, ", ")
		}
	}
	if lost := d.Header[hdrUnsendable]; len(lost) > 0 {
		r.Warning = strings.TrimPrefix(r.Warning+"; ", "; ") + fmt.Sprintf("%d header fields have names that cannot be sent again", len(lost))
	}
	h[hdrMsgID] = []string{r.ID}
	r.msg = &nats.Msg{Subject: r.Subject, Header: h, Data: data}
	return r, l.fits(r, info)
}

// fits is said before anything is sent: a message at the limit has no room for
// what a replay adds. Streams of ours make room for it.
func (l *Letters) fits(r *Replay, info *jetstream.StreamInfo) error {
	limit, name := l.nc.MaxPayload(), "max_payload"
	if n := int64(info.Config.MaxMsgSize); n > 0 && n < limit && !mq.Ours(&info.Config) {
		limit, name = n, "max_msg_size"
	}
	if n := r.bytes(); n > limit {
		return fmt.Errorf("with the headers of a replay it has %d bytes; stream %s takes %d (%s): raise that, or edit it", n, info.Config.Name, limit, name)
	}
	return nil
}

func (r *Replay) bytes() int64 { return int64(headerSize(r.msg.Header) + len(r.msg.Data)) }

// publish makes room in a stream of ours for as long as it takes.
func (l *Letters) publish(ctx context.Context, r *Replay, cfg jetstream.StreamConfig) (ack *jetstream.PubAck, err error) {
	if n := r.bytes(); cfg.MaxMsgSize > 0 && n > int64(cfg.MaxMsgSize) {
		wider := cfg
		wider.MaxMsgSize = int32(n)
		if _, err := l.js.UpdateStream(ctx, wider); err != nil {
			return nil, fmt.Errorf("make room for %d bytes in stream %s: %w", n, cfg.Name, err)
		}
		defer func() {
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWait)
			defer cancel()
			if _, e := l.js.UpdateStream(back, cfg); e != nil {
				err = errors.Join(err, fmt.Errorf("set max_msg_size of stream %s back to %d: %w", cfg.Name, cfg.MaxMsgSize, e))
			}
		}()
	}
	return l.js.PublishMsg(ctx, r.msg)
}

// Send publishes what was prepared and removes the dead letter once the server
// has confirmed it. Sent twice, it is stored once.
func (l *Letters) Send(ctx context.Context, r *Replay) error {
	if err := l.send(ctx, r); err != nil {
		return fmt.Errorf("replay dead letter %d: %w", r.Letter.Sequence, err)
	}
	return nil
}

func (l *Letters) send(ctx context.Context, r *Replay) error {
	st, err := l.js.Stream(ctx, r.Stream)
	if err != nil {
		return err
	}
	if err := l.fits(r, st.CachedInfo()); err != nil { // it may have been edited
		return err
	}
	ack, err := l.publish(ctx, r, st.CachedInfo().Config)
	if err != nil {
		return err
	}
	if ack.Duplicate && r.edited {
		return errors.New("it was replayed unedited a moment ago; the edited one was dropped as its duplicate")
	}
	r.Stream, r.Sequence, r.Duplicate = ack.Stream, ack.Sequence, ack.Duplicate
	a := AuditLine{Action: "replay", Letter: r.Letter, ID: r.ID, To: fmt.Sprintf("%s %s:%d", r.Subject, ack.Stream, ack.Sequence)}
	if r.edited {
		a.Action, a.Before, a.After = "edit", digestOf(r.before), digestOf(r.msg.Data)
	}
	if err := l.audit(ctx, a); err != nil {
		return err
	}
	return l.remove(ctx, r.Letter)
}

// Restore is the message of a dead letter as it was: its own headers and
// payload, which a stub has in the original alone.
func (l *Letters) Restore(ctx context.Context, sequence uint64) (Letter, error) {
	d, err := l.Read(ctx, sequence)
	if err == nil {
		d, err = l.restore(ctx, d)
	}
	if err != nil {
		return Letter{}, fmt.Errorf("restore dead letter %d: %w", sequence, err)
	}
	return d, nil
}

func (l *Letters) restore(ctx context.Context, d Letter) (Letter, error) {
	if d.Stub {
		m, err := l.original(ctx, d)
		if err != nil {
			return d, err
		}
		d.Header, d.Data = m.Header, m.Data
	}
	d.Header = originalHeader(d.Header)
	return d, nil
}

// original is the message that a stub stands for.
func (l *Letters) original(ctx context.Context, d Letter) (*mq.Stored, error) {
	gone := fmt.Errorf("it is a stub, because the message was too large for a copy, and the original (message %d of stream %s) is gone: there is nothing to replay", d.Original, d.Stream)
	st, err := l.js.Stream(ctx, d.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	if newIdentity(d.Pipeline, d.Stream, st.CachedInfo().Created).id(d.Original, "dlq") != get(d.Header, hdrMsgID) {
		return nil, fmt.Errorf("%w (the stream was made anew since)", gone)
	}
	m, err := mq.ReadStored(ctx, l.nc, d.Stream, d.Original)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, gone
	}
	return m, err
}

// originalHeader is what the message had before it died. Control headers stay
// behind: they spoke to the server about another publish.
func originalHeader(h nats.Header) nats.Header {
	orig := nats.Header{}
	for name, values := range h {
		if !hasPrefixFold(name, prefixOurs) && !hasPrefixFold(name, prefixNats) && sendable(name) {
			orig[name] = values
		}
	}
	return orig
}

func holds(subjects []string, s string) bool {
	return slices.ContainsFunc(subjects, func(f string) bool { return f == s || subject.Match(f, s) })
}

// readersOfSubject names the consumers of a stream that get a subject.
func readersOfSubject(ctx context.Context, st jetstream.Stream, s string) ([]string, error) {
	var names []string
	list := st.ListConsumers(ctx)
	for c := range list.Info() {
		filters := c.Config.FilterSubjects
		if c.Config.FilterSubject != "" {
			filters = []string{c.Config.FilterSubject}
		}
		if len(filters) == 0 || holds(filters, s) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names, list.Err()
}
