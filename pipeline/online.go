package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/subject"
)

// What a Change does.
const (
	ChangeMake   = "make"
	ChangeAdd    = "add"    // subjects
	ChangeSet    = "set"    // what mqrun keeps up to date by itself
	ChangeDiffer = "differ" // it is left as it is
	ChangeUse    = "use"    // as it is: it is not mqrun's
	ChangeRefuse = "refuse" // run would not start
)

// Change is what run would do to a stream, a consumer or a bucket, or would not.
type Change struct {
	Kind string `json:"kind"`
	What string `json:"what"` // such as `stream MQRUN`
	Text string `json:"text"`
	Cure string `json:"cure,omitempty"` // of a difference: how to end it
}

// String is the change for people.
func (c Change) String() string {
	if c.Cure != "" {
		return c.What + ": " + c.Text + "; " + c.Cure
	}
	return c.What + ": " + c.Text
}

// comparison is what a server holds beside what a configuration wants.
type comparison struct {
	js      jetstream.JetStream
	cfg     *config.Config
	layout  layout
	have    map[string]*jetstream.StreamInfo
	size    int64 // of the store
	changes []Change
}

// Compare tells what run would change on the server, without a change. The
// problems are what keeps run from starting there.
func Compare(ctx context.Context, nc *nats.Conn, cfg *config.Config) ([]Change, config.Problems, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	rights, err := mq.AskRights(ctx, nc)
	if err != nil {
		return nil, nil, err
	}
	if ps := rightsToLook(rights, cfg); ps != nil {
		return nil, ps, nil
	}
	k := &comparison{js: js, cfg: cfg, have: map[string]*jetstream.StreamInfo{}, size: cfg.Server.MaxBytes}
	problems, err := k.look(ctx, nc)
	if err != nil || problems != nil {
		return nil, problems, mq.Explain(nc, err)
	}
	k.streams()
	k.buckets()
	if err := k.consumers(ctx); err != nil {
		return nil, nil, mq.Explain(nc, err)
	}
	if rights != nil {
		problems = missingRights(rights, cfg, k.layout)
		problems = append(problems, k.rightsToChange(rights)...).Sort()
	}
	slices.SortStableFunc(k.changes, func(a, b Change) int { return strings.Compare(a.What, b.What) })
	return k.changes, problems, nil
}

func (k *comparison) add(kind, what, cure, format string, args ...any) {
	k.changes = append(k.changes, Change{Kind: kind, What: what, Text: fmt.Sprintf(format, args...), Cure: cure})
}

// look reads the streams and lays out those of the configuration among them.
func (k *comparison) look(ctx context.Context, nc *nats.Conn) (config.Problems, error) {
	a, err := k.js.AccountInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for JetStream: %w", err)
	}
	if most := a.Limits.MaxStore; most > 0 && k.cfg.NATS.URL != "" {
		k.size = min(k.size, most/int64(k.cfg.Replicas()))
	}
	list := k.js.ListStreams(ctx)
	for info := range list.Info() {
		k.have[info.Config.Name] = info
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	have, err := heldStreams(ctx, k.js, nc.MaxPayload())
	if err != nil {
		return nil, err
	}
	var problems config.Problems
	k.layout, problems = planLayout(k.cfg, have, k.size, nc.MaxPayload())
	return problems, nil
}

func (k *comparison) streams() {
	for _, spec := range k.layout.streams {
		if spec.Replicas == 0 {
			spec.Replicas = k.cfg.Replicas()
		}
		k.stream(spec)
	}
	audit := auditSpec(k.size)
	audit.Replicas = k.cfg.Replicas()
	k.stream(audit)
	used := map[string][]string{}
	for name, ins := range k.layout.inputs {
		for _, in := range ins {
			if info := k.have[in.stream]; info != nil && !mq.Ours(&info.Config) {
				used[in.stream] = append(used[in.stream], name)
			}
		}
	}
	for stream, by := range used {
		slices.Sort(by)
		k.add(ChangeUse, "stream "+stream, "", "it is not mqrun's and is used as it is by %s; only a consumer is made on it", strings.Join(by, ", "))
	}
}

func (k *comparison) stream(spec mq.StreamSpec) {
	what := "stream " + spec.Name
	info := k.have[spec.Name]
	if info == nil {
		k.add(ChangeMake, what, "", "is made for %s, with %d replicas and at most %d bytes", strings.Join(spec.Subjects, ", "), max(spec.Replicas, 1), spec.MaxBytes)
		return
	}
	c := &info.Config
	if !mq.Ours(c) {
		k.add(ChangeRefuse, what, "", "is there and not mqrun's, so it never gets %s: rename it, or name another stream for these subjects under streams:", strings.Join(spec.Subjects, ", "))
		return
	}
	var lacks []string
	for _, s := range spec.Subjects {
		if !slices.ContainsFunc(c.Subjects, func(h string) bool { return subject.Covers(h, s) }) {
			lacks = append(lacks, s)
		}
	}
	if lacks != nil {
		k.add(ChangeAdd, what, "", "adds the subjects %s", strings.Join(lacks, ", "))
	}
	if spec.MaxBytes > 0 && spec.MaxBytes != c.MaxBytes {
		k.add(ChangeSet, what, "", "max_bytes goes from %d to %d", c.MaxBytes, spec.MaxBytes)
	}
	if spec.Split != nil && c.SubjectTransform == nil {
		k.add(ChangeSet, what, "", "is split by subject: what comes on %s is stored as %s from then on; consumers that are not mqrun's have to read that", spec.Split.Source, spec.Split.Destination)
	}
	differs := func(key, flag string, is, wanted any) {
		if spec.Declared {
			k.add(ChangeSet, what, "", "%s goes from %v to %v", key, is, wanted)
			return
		}
		k.add(ChangeDiffer, what, fmt.Sprintf("to change it: nats stream edit %s %s", spec.Name, flag), "has %s %v where the configuration has %v, and is left so", key, is, wanted)
	}
	if n := max(spec.Replicas, 1); n != max(c.Replicas, 1) {
		differs("replicas", fmt.Sprintf("--replicas=%d", n), max(c.Replicas, 1), n)
	}
	s := k.cfg.Streams[spec.Name]
	if s == nil {
		return
	}
	if s.MaxAge != c.MaxAge {
		differs("max_age", "", c.MaxAge, s.MaxAge)
	}
	if s.DuplicateWindow > 0 && s.DuplicateWindow != c.Duplicates {
		differs("duplicate_window", "", c.Duplicates, s.DuplicateWindow)
	}
	if s.MaxMsgSize > 0 && s.MaxMsgSize != int64(c.MaxMsgSize) {
		differs("max_msg_size", "", c.MaxMsgSize, s.MaxMsgSize)
	}
}

// buckets are mqrun's own and those of plugins.
func (k *comparison) buckets() {
	names := map[string]bool{BucketAttempts: true, BucketState: true}
	for _, p := range k.cfg.Pipelines {
		if p.Order != "none" || p.Commit == "batch" {
			names[BucketLeases] = true
		}
	}
	for _, p := range k.cfg.Plugins {
		for _, b := range p.Allow.KV {
			names[b] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		info := k.have["KV_"+name]
		switch n := k.cfg.Replicas(); {
		case info == nil:
			k.add(ChangeMake, "bucket "+name, "", "is made with %d replicas", n)
		case max(info.Config.Replicas, 1) != n:
			k.add(ChangeDiffer, "bucket "+name, fmt.Sprintf("to change it: nats stream edit KV_%s --replicas=%d", name, n), "has %d replicas where the configuration has %d, and is left so", max(info.Config.Replicas, 1), n)
		}
	}
}

func (k *comparison) consumers(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(k.cfg.Pipelines)) {
		p := k.cfg.Pipelines[name]
		if p.Commit == "batch" {
			continue // its consumer lives as long as the process
		}
		for _, in := range k.layout.inputs[name] {
			if err := k.consumer(ctx, in.stream, consumerConfig(p, in.filters)); err != nil {
				return err
			}
			for n := range in.parts {
				c := consumerConfig(p, []string{partFilter(in.stream, in.parts, n, p.From[0])})
				c.Durable = partDurable(p.Key(), in.parts, n)
				if err := k.consumer(ctx, in.stream, c); err != nil {
					return err
				}
			}
		}
	}
	all, err := Durables(ctx, k.js, func(key string) bool {
		for _, p := range k.cfg.Pipelines {
			if p.Key() == key {
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.Orphan {
			k.add(ChangeDiffer, "consumer "+d.Name+" on stream "+d.Stream, "to remove it: mqrun consumers rm "+d.Pipeline, "is of no pipeline, and keeps what it has not read from being purged")
		}
	}
	return nil
}

func (k *comparison) consumer(ctx context.Context, stream string, want jetstream.ConsumerConfig) error {
	what := "consumer " + want.Durable + " on stream " + stream
	made := func() {
		begin := map[jetstream.DeliverPolicy]string{jetstream.DeliverAllPolicy: "the oldest message", jetstream.DeliverNewPolicy: "the next message"}[want.DeliverPolicy]
		switch {
		case want.OptStartTime != nil:
			begin = "the first message since " + want.OptStartTime.UTC().Format(time.RFC3339)
		case begin == "":
			begin = fmt.Sprintf("message %d", want.OptStartSeq)
		}
		k.add(ChangeMake, what, "", "is made for %s, and begins with %s", strings.Join(want.FilterSubjects, ", "), begin)
	}
	if k.have[stream] == nil {
		made()
		return nil
	}
	c, err := k.js.Consumer(ctx, stream, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		made()
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	is := c.CachedInfo().Config
	if is.AckPolicy != want.AckPolicy {
		k.add(ChangeRefuse, what, "", "has ack policy %s, mqrun needs explicit: remove it or rename the pipeline", is.AckPolicy)
		return nil
	}
	filters := is.FilterSubjects
	if is.FilterSubject != "" {
		filters = []string{is.FilterSubject}
	}
	slices.Sort(filters)
	if wanted := slices.Sorted(slices.Values(want.FilterSubjects)); !slices.Equal(filters, wanted) {
		k.add(ChangeSet, what, "", "filters go from %s to %s", strings.Join(filters, ", "), strings.Join(wanted, ", "))
	}
	if is.AckWait != want.AckWait {
		k.add(ChangeSet, what, "", "ack_wait goes from %s to %s", is.AckWait, want.AckWait)
	}
	if is.MaxDeliver != want.MaxDeliver || is.MaxAckPending != want.MaxAckPending || len(is.BackOff) > 0 {
		k.add(ChangeSet, what, "", "max_deliver, max_ack_pending and back-off become those of mqrun: attempts are counted by the host")
	}
	return nil
}

// rightsToLook are those that Compare itself needs.
func rightsToLook(r *mq.Rights, cfg *config.Config) config.Problems {
	if r == nil {
		return nil
	}
	return lacking(r, cfg, "$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.INFO.*.*")
}

// rightsToChange are those that the plan needs.
func (k *comparison) rightsToChange(r *mq.Rights) config.Problems {
	var subjects []string
	for _, c := range k.changes {
		kind, name, _ := strings.Cut(c.What, " ")
		api := map[string]string{ChangeMake: "CREATE", ChangeAdd: "UPDATE", ChangeSet: "UPDATE"}[c.Kind]
		switch {
		case api == "":
		case kind == "consumer":
			consumer, stream, _ := strings.Cut(name, " on stream ")
			subjects = append(subjects, "$JS.API.CONSUMER.CREATE."+stream+"."+consumer)
		case kind == "bucket":
			subjects = append(subjects, "$JS.API.STREAM."+api+".KV_"+name)
		default:
			subjects = append(subjects, "$JS.API.STREAM."+api+"."+name)
		}
	}
	slices.Sort(subjects)
	return lacking(r, k.cfg, slices.Compact(subjects)...)
}

func lacking(r *mq.Rights, cfg *config.Config, subjects ...string) (ps config.Problems) {
	for _, s := range subjects {
		if !r.MayPublish(s) {
			ps = append(ps, cfg.Problem(fmt.Sprintf("user %q of account %q may not publish to %q (permissions violation); allow it on the server", r.User, r.Account, s), "", "nats"))
		}
	}
	return ps
}
