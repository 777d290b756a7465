package mq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/subject"
)

// StreamSpec describes a stream of ours. Only Name and Subjects are needed.
type StreamSpec struct {
	Name     string
	Subjects []string
	// MaxBytes caps the stream; 0 is no cap. It is the one limit that
	// EnsureStream also sets on a stream that exists: shares change when
	// pipelines come and go.
	MaxBytes int64
	// MaxMsgSize is the largest message, headers included; 0 is the server's
	// largest payload less [PayloadReserve], -1 no limit but the server's.
	MaxMsgSize int64
	// MaxAge removes older messages; 0 keeps them.
	MaxAge time.Duration
	// DuplicateWindow is how long message ids are remembered; 0 is 2 minutes, or
	// MaxAge when that is less.
	DuplicateWindow time.Duration
	// DenyPurge refuses purges, and with them roll-ups.
	DenyPurge bool
	// Retention is "limits" (also ""), "interest" or "workqueue".
	Retention string
	// Discard is "new" (also ""): a full stream refuses messages, or "old": it
	// forgets its oldest ones. Only the latter can hold message schedules.
	Discard  string
	Replicas int // 0 is 1
	// Declared lets EnsureStream set MaxMsgSize, MaxAge, DuplicateWindow and
	// Replicas of a stream that exists, too: somebody has written them down.
	Declared bool
	// Split stores messages under other subjects, by which they are told apart.
	// It is set once: EnsureStream never changes one that is there.
	Split *jetstream.SubjectTransformConfig
}

// metaKey marks a stream as ours; its value is the store format.
const metaKey = "mqrun"

const duplicateWindow = 2 * time.Minute

// Ours reports whether mqrun made the stream.
func Ours(c *jetstream.StreamConfig) bool { return c.Metadata[metaKey] != "" }

// EnsureStream makes the stream, or adds the subjects that it lacks. It never
// takes a subject away, and changes nothing else of a stream that exists but
// its MaxBytes, unless it is Declared. A stream that mqrun did not make is never changed: one of that
// name, or one that holds a subject already, is ErrForeignStream.
func EnsureStream(ctx context.Context, js jetstream.JetStream, s StreamSpec) (*jetstream.StreamInfo, error) {
	info, err := ensure(ctx, js, s)
	if hasCode(err, jetstream.JSErrCodeStreamNameInUse) {
		info, err = ensure(ctx, js, s) // made by somebody else in between
	}
	switch {
	case hasCode(err, codeSubjectOverlap):
		err = overlapError(ctx, js, s, err)
	case hasCode(err, codeNoCluster):
		err = fmt.Errorf("%w: the server is no cluster, so it keeps 1 replica and not %d (nats.replicas)", err, s.Replicas)
	case hasCode(err, codeNoPeers):
		err = fmt.Errorf("%w: %d replicas need as many servers that run and have room for %d bytes (nats.replicas)", err, max(s.Replicas, 1), s.MaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("ensure stream %q: %w", s.Name, err)
	}
	return info, nil
}

func ensure(ctx context.Context, js jetstream.JetStream, s StreamSpec) (*jetstream.StreamInfo, error) {
	for _, f := range s.Subjects {
		if err := subject.ValidFilter(f); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidSubject, err)
		}
	}
	if len(s.Subjects) == 0 {
		return nil, errors.New("it has no subjects")
	}
	old, err := js.Stream(ctx, s.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return create(ctx, js, s)
	}
	if err != nil {
		return nil, err
	}
	info := old.CachedInfo()
	cfg := info.Config
	if !Ours(&cfg) {
		return nil, fmt.Errorf("%w: it has no mark of mqrun; rename it, or use it for its own subjects %q", ErrForeignStream, cfg.Subjects)
	}
	if n, err := strconv.Atoi(cfg.Metadata[metaKey]); err != nil || n > Format {
		return nil, fmt.Errorf("%w: it has format %q, this version knows %d", ErrStoreNewer, cfg.Metadata[metaKey], Format)
	}
	want := cfg
	if s.Declared {
		fresh, err := s.config(js.Conn().MaxPayload())
		if err != nil {
			return nil, err
		}
		want.MaxMsgSize, want.MaxAge, want.Duplicates = fresh.MaxMsgSize, fresh.MaxAge, fresh.Duplicates
		if s.Replicas > 0 {
			want.Replicas = fresh.Replicas
		}
	}
	subjects := cover(append(slices.Clone(cfg.Subjects), s.Subjects...))
	slices.Sort(cfg.Subjects)
	if s.MaxBytes != 0 {
		want.MaxBytes = s.MaxBytes
	}
	same := want.MaxBytes == cfg.MaxBytes && want.MaxMsgSize == cfg.MaxMsgSize && want.MaxAge == cfg.MaxAge &&
		want.Duplicates == cfg.Duplicates && want.Replicas == cfg.Replicas
	split := s.Split != nil && cfg.SubjectTransform == nil
	if s.Split != nil && !split && *s.Split != *cfg.SubjectTransform {
		return nil, fmt.Errorf("it stores %s as %s already", cfg.SubjectTransform.Source, cfg.SubjectTransform.Destination)
	}
	if split {
		want.SubjectTransform = s.Split
	}
	if same && !split && slices.Equal(subjects, cfg.Subjects) {
		return info, nil
	}
	want.Subjects = subjects
	st, err := js.UpdateStream(ctx, want)
	if err != nil {
		return nil, err
	}
	return st.CachedInfo(), nil
}

func create(ctx context.Context, js jetstream.JetStream, s StreamSpec) (*jetstream.StreamInfo, error) {
	cfg, err := s.config(js.Conn().MaxPayload())
	if err != nil {
		return nil, err
	}
	st, err := placed(ctx, cfg.Replicas, func() (jetstream.Stream, error) { return js.CreateStream(ctx, cfg) })
	if err != nil {
		return nil, err
	}
	// A server that does not know a field drops it without a word.
	got := st.CachedInfo().Config
	if !got.AllowAtomicPublish || !got.AllowMsgTTL || got.AllowMsgSchedules != cfg.AllowMsgSchedules {
		return nil, errors.Join(errors.New("the server is too old: it has no atomic batches or message TTLs; use nats-server "+minVersion+" or newer"),
			js.DeleteStream(ctx, s.Name))
	}
	return st.CachedInfo(), nil
}

func (s StreamSpec) config(maxPayload int64) (jetstream.StreamConfig, error) {
	c := jetstream.StreamConfig{
		Name: s.Name, Subjects: cover(s.Subjects), Storage: jetstream.FileStorage,
		MaxBytes: s.MaxBytes, MaxAge: s.MaxAge, MaxMsgSize: int32(s.MaxMsgSize),
		Duplicates: s.DuplicateWindow, Replicas: max(s.Replicas, 1),
		AllowRollup: !s.DenyPurge, DenyPurge: s.DenyPurge, AllowDirect: true,
		AllowAtomicPublish: true, AllowMsgTTL: true,
		SubjectTransform: s.Split,
		Metadata:         map[string]string{metaKey: strconv.Itoa(Format)},
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = -1
	}
	if s.MaxMsgSize == 0 {
		c.MaxMsgSize = int32(max(maxPayload-PayloadReserve, PayloadReserve))
	}
	if c.Duplicates == 0 {
		c.Duplicates = duplicateWindow
		if s.MaxAge > 0 {
			c.Duplicates = min(c.Duplicates, s.MaxAge)
		}
	}
	switch s.Retention {
	case "", "limits":
		c.Retention = jetstream.LimitsPolicy
	case "interest":
		c.Retention = jetstream.InterestPolicy
	case "workqueue":
		c.Retention = jetstream.WorkQueuePolicy
	default:
		return c, fmt.Errorf("retention %q is none of limits, interest, workqueue", s.Retention)
	}
	switch s.Discard {
	case "", "new":
		c.Discard = jetstream.DiscardNew
	case "old":
		c.Discard = jetstream.DiscardOld
		c.AllowMsgSchedules = !s.DenyPurge // the server refuses it with discard new
	default:
		return c, fmt.Errorf("discard %q is neither new nor old", s.Discard)
	}
	return c, nil
}

// cover sorts subjects and drops those that another one holds: the server
// refuses a stream whose subjects overlap.
func cover(subjects []string) []string {
	set := make(map[string]bool)
	for _, s := range subjects {
		set[s] = true
	}
	for a := range maps.Clone(set) {
		for b := range set {
			if a != b && subject.Covers(b, a) {
				delete(set, a)
				break
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// overlapError names the streams that hold subjects of s.
func overlapError(ctx context.Context, js jetstream.JetStream, s StreamSpec, cause error) error {
	var clash []string
	list := js.ListStreams(ctx)
	for i := range list.Info() {
		if i.Config.Name == s.Name {
			continue
		}
		for _, theirs := range i.Config.Subjects {
			for _, f := range s.Subjects {
				if subject.Overlap(theirs, f) {
					clash = append(clash, fmt.Sprintf("%q overlaps %q of stream %q", f, theirs, i.Config.Name))
				}
			}
		}
	}
	if len(clash) == 0 {
		return cause
	}
	slices.Sort(clash)
	return fmt.Errorf("%w: %s; leave the subject there, or take it from that stream first", ErrForeignStream, strings.Join(clash, ", "))
}
