package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/subject"
)

const (
	janitorEvery = 10 * time.Second
	highWater    = 0.8 // share of a stream's max_bytes from which read messages go
	lowWater     = 0.7 // what unread results are trimmed down to
	defaultKeep  = time.Hour
	maxResultAge = 168 * time.Hour // of results that no durable reads
)

// janitor makes room in the streams of ours. A max_age would delete messages
// that nobody has handled yet.
func (m *Manager) janitor(ctx context.Context) {
	t := time.NewTicker(janitorEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if err := m.sweep(ctx, now); err != nil && ctx.Err() == nil {
				m.o.Logger.Warn("janitor", "error", err)
			}
		}
	}
}

// sweep looks at every stream of ours once. Dead letters are never trimmed: a
// full MQRUN_DLQ blocks its pipelines and shows in their state.
func (m *Manager) sweep(ctx context.Context, now time.Time) error {
	list := m.broker.js.ListStreams(ctx)
	var infos []*jetstream.StreamInfo
	for info := range list.Info() {
		if mq.Ours(&info.Config) && info.Config.Name != mq.DLQStreamName() && info.State.Msgs > 0 {
			infos = append(infos, info)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list streams: %w", err)
	}
	ckpts, err := m.checkpoints(ctx, infos)
	if err != nil {
		return err
	}
	for _, info := range infos {
		if err := m.tidy(ctx, info, ckpts[info.Config.Name], now); err != nil {
			return fmt.Errorf("tidy stream %s: %w", info.Config.Name, err)
		}
	}
	return nil
}

// tidy purges what has been read once the stream is over the high water mark,
// and what nobody reads when it is old or the stream still too full.
func (m *Manager) tidy(ctx context.Context, info *jetstream.StreamInfo, ckpts []reader, now time.Time) error {
	st, err := m.broker.js.Stream(ctx, info.Config.Name)
	if err != nil {
		return err
	}
	info = st.CachedInfo() // its last sequence is older than what the consumers say now
	readers, err := readersOf(ctx, st, info.State.LastSeq)
	if err != nil {
		return err
	}
	readers = append(readers, ckpts...)
	full := info.Config.MaxBytes > 0 && float64(info.State.Bytes) > highWater*float64(info.Config.MaxBytes)
	keep := max(2*info.Config.Duplicates, m.keepOf(info.Config.Name))
	for _, f := range purgeable(&info.Config) {
		floor, read := floorOf(readers, f)
		end, age := floor+1, keep
		switch {
		case read && !full:
			continue
		case !read && !full:
			end, age = info.State.LastSeq+1, maxResultAge
		case !read:
			// Sequences stand for bytes: the messages of one subject are alike.
			excess := 1 - lowWater*float64(info.Config.MaxBytes)/float64(info.State.Bytes)
			end = info.State.FirstSeq + uint64(excess*float64(info.State.LastSeq-info.State.FirstSeq+1)) + 1
			age = 2 * info.Config.Duplicates
		}
		below, err := mq.FirstSince(ctx, st, info.State.FirstSeq, end, now.Add(-age))
		if err != nil {
			return err
		}
		if below <= info.State.FirstSeq {
			continue
		}
		n, err := mq.PurgeBelow(ctx, m.broker.js, info.Config.Name, []string{f}, below)
		if err != nil {
			return err
		}
		if n > 0 {
			m.o.Logger.Info("purged", "stream", info.Config.Name, "subject", f, "messages", n, "below", below, "read", read)
		}
	}
	return nil
}

// purgeable are the filters of a stream's messages that are not mqrun's own. Of
// what the stream is split by, they are in the parts.
func purgeable(c *jetstream.StreamConfig) []string {
	var all []string
	for _, f := range c.Subjects {
		if subject.Overlap(f, "mqrun.>") {
			continue
		}
		all = append(all, f)
		if t := c.SubjectTransform; parts(c.Name, t) > 0 && subject.Overlap(f, t.Source) {
			if subject.Covers(f, t.Source) {
				f = t.Source
			}
			all = append(all, anyPart(c.Name, f))
		}
	}
	return all
}

func (m *Manager) keepOf(stream string) time.Duration {
	if s := m.Config().Streams[stream]; s != nil && s.Keep > 0 {
		return s.Keep
	}
	return defaultKeep
}

// reader is a durable consumer, ours or not, and how far it is.
type reader struct {
	filters []string // none: the whole stream
	floor   uint64
}

// checkpoints lists the batch pipelines that read each stream, of this process
// or not: they have no durable.
func (m *Manager) checkpoints(ctx context.Context, infos []*jetstream.StreamInfo) (map[string][]reader, error) {
	readers := map[string][]reader{}
	for _, info := range infos {
		st, err := m.broker.js.Stream(ctx, info.Config.Name)
		if err != nil {
			return nil, err
		}
		with, err := st.Info(ctx, jetstream.WithSubjectFilter("mqrun."+info.Config.Name+".ckpt.>"))
		if err != nil {
			return nil, err
		}
		for subj := range with.State.Subjects {
			c, err := readCheckpoint(ctx, m.broker.js, info.Config.Name, subj)
			if err != nil {
				return nil, err
			}
			readers[c.Stream] = append(readers[c.Stream], reader{floor: c.Sequence})
		}
	}
	return readers, nil
}

// readersOf lists the durables of a stream. last is a sequence that was the
// stream's last before: a consumer with nothing to do is through with it,
// while its own floor stays at the last message that matched its filters.
func readersOf(ctx context.Context, st jetstream.Stream, last uint64) ([]reader, error) {
	var rs []reader
	list := st.ListConsumers(ctx)
	for c := range list.Info() {
		if c.Config.Durable == "" {
			continue
		}
		r := reader{filters: c.Config.FilterSubjects, floor: last}
		if c.Config.FilterSubject != "" {
			r.filters = []string{c.Config.FilterSubject}
		}
		switch {
		case c.NumAckPending > 0:
			r.floor = min(last, c.AckFloor.Stream)
		case c.NumPending > 0:
			r.floor = min(last, max(c.AckFloor.Stream, c.Delivered.Stream))
		}
		rs = append(rs, r)
	}
	return rs, list.Err()
}

// floorOf is the lowest floor of those who read some of the filter's messages.
func floorOf(rs []reader, filter string) (floor uint64, read bool) {
	var floors []uint64
	for _, r := range rs {
		if len(r.filters) == 0 || slices.ContainsFunc(r.filters, func(f string) bool { return subject.Overlap(f, filter) }) {
			floors = append(floors, r.floor)
		}
	}
	if floors == nil {
		return 0, false
	}
	return slices.MinFunc(floors, cmp.Compare), true
}
