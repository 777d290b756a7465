package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/host"
	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/subject"
)

// Options are the parts that a Manager works with. It closes none of them.
type Options struct {
	MQ     *mq.EmbeddedNATS
	Host   *host.Runtime
	Logger *slog.Logger // default slog.Default
	// MaxBytes and MaxPayload bound the streams; 0 is what MQ has.
	MaxBytes, MaxPayload int64
	// StoreDir is the folder of the crash journal, of this process alone; ""
	// keeps none, and then a message that kills the process is never found.
	StoreDir string
	// Concluded, if set, is told how each rollout of a new module ended.
	Concluded func(Rollout)
}

// engine is one running pipeline, whatever its way to commit.
type engine interface {
	begin()             // pulls
	swap(*chain) *chain // handles further messages with another chain
	// drain settles what the engine holds. What no worker has begun after
	// patience is given back; when ctx ends, so is the rest.
	drain(ctx context.Context, patience time.Duration) error
	close()
	tick(now time.Time, scratch []*slot) []*slot
	reconnected()
	violated(mq.Violation) // a right is missing
	status() Status
}

// Manager runs the pipelines of one configuration at a time, a generation, and
// takes over the next one while messages flow. Its methods may be called
// concurrently; Apply and Drain take turns.
type Manager struct {
	o       Options
	broker  *broker
	load    loader
	kv      store
	stop    context.CancelFunc
	keeper  sync.WaitGroup
	rescuer *rescuer

	draining sync.Mutex
	applying sync.Mutex // held by whoever changes the generation

	// leaving are engines that a reload drains. They outlive an Apply that is
	// stopped, and are hurried when Drain may wait no longer.
	leaving sync.WaitGroup
	patient context.Context //nolint:containedctx // ends with that
	hurry   context.CancelFunc

	mu         sync.Mutex
	cfg        *config.Config
	generation uint64
	modules    modules
	rollouts   map[string]Rollout // that ended, by plugin
	deny       []string           // dead letter subjects of the running generation
	streams    []mq.StreamSpec    // and its streams
	pipelines  map[string]engine
	closed     bool

	limits atomic.Pointer[limits]
}

// limits are the largest messages that streams take, by subject. Literal
// subjects are found at once.
type limits struct {
	literal map[string]int64
	filters []streamLimit
}

type streamLimit struct {
	filter string
	maxMsg int64
}

func newLimits(have []held) *limits {
	l := &limits{literal: map[string]int64{}}
	for _, h := range have {
		for _, s := range h.subjects {
			if subject.Literal(s) {
				l.literal[s] = h.maxMsg
			} else {
				l.filters = append(l.filters, streamLimit{s, h.maxMsg})
			}
		}
	}
	return l
}

func (l *limits) of(s string, otherwise int64) int64 {
	if n, ok := l.literal[s]; ok {
		return n
	}
	for _, f := range l.filters {
		if subject.Match(f.filter, s) {
			return f.maxMsg
		}
	}
	return otherwise
}

// ErrClosed is returned by Apply after Drain.
var ErrClosed = errors.New("pipelines are stopped")

// Open connects and makes the attempts bucket. Nothing runs before Apply.
func Open(ctx context.Context, o Options) (*Manager, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = o.MQ.MaxBytes()
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = o.MQ.NatsConn().MaxPayload()
	}
	m := &Manager{o: o, kv: store{js: o.MQ.JetStream(), replicas: o.MQ.Replicas()}, cfg: &config.Config{}, pipelines: map[string]engine{}, rollouts: map[string]Rollout{}}
	m.patient, m.hurry = context.WithCancel(context.Background())
	m.load = sandboxed(o.Host, &m.kv)
	b := &broker{
		js: o.MQ.JetStream(), link: newLink(), limit: m.limit, leaseBytes: mq.Budget(o.MaxBytes, 1).KV / 10,
		replicas: o.MQ.Replicas(), suspects: make(turn, 1), losses: losses{known: o.MQ.Losses}, trouble: make(chan struct{}, 1), steady: o.MQ.Steady,
	}
	if err := b.connect(ctx, o, m); err != nil {
		return nil, err
	}
	var err error
	if b.journal, err = m.startJournal(ctx, b.attempts); err != nil {
		b.disconnect()
		return nil, err
	}
	b.owner = processName(nuid.Next())
	if b.journal != nil {
		b.owner = processName(b.journal.run)
	}
	m.broker = b
	if m.rescuer, err = newRescuer(m, b.out); err != nil {
		b.disconnect()
		return nil, errors.Join(err, b.journal.close())
	}
	var life context.Context
	life, m.stop = context.WithCancel(context.Background())
	m.keeper.Go(func() { m.keep(life) })
	m.keeper.Go(func() { m.heal(life) })
	m.keeper.Go(func() { m.janitor(life) })
	m.keeper.Go(func() { m.rescuer.run(life) })
	return m, nil
}

// startJournal counts what the last process left in the crash journal, and
// begins a new one. A journal that cannot be written is no reason not to start.
func (m *Manager) startJournal(ctx context.Context, attempts jetstream.KeyValue) (*journal, error) {
	j, run, crashes, err := openJournal(m.o.StoreDir, m.o.Logger)
	if err != nil {
		return nil, err
	}
	if err := countCrashes(ctx, attempts, run, crashes, m.o.Logger); err != nil {
		m.o.Logger.Error("what was in work when the last process ended is not counted", "error", err)
	}
	if err := j.start(); err != nil {
		m.o.Logger.Warn("no crash journal: a message that kills the process will not be found", "error", err)
		return nil, j.close()
	}
	return j, nil
}

// keep drives the timers of all pipelines from one goroutine.
func (m *Manager) keep(ctx context.Context) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	var scratch []*slot
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			for _, p := range m.running() {
				scratch = p.tick(now, scratch)
			}
			m.guard(now)
		}
	}
}

func (m *Manager) running() []engine {
	m.mu.Lock()
	defer m.mu.Unlock()
	ps := make([]engine, 0, len(m.pipelines))
	for _, p := range m.pipelines {
		ps = append(ps, p)
	}
	return ps
}

func (m *Manager) reconnected() {
	for _, p := range m.running() {
		p.reconnected()
	}
}

// limit is the largest message that the subject's stream takes, as far as it
// is known.
func (m *Manager) limit(s string) int64 {
	l := m.limits.Load()
	if l == nil {
		return m.o.MaxPayload
	}
	return l.of(s, m.o.MaxPayload)
}

// layOut makes the streams of cfg, or adds the subjects that they lack.
func (m *Manager) layOut(ctx context.Context, cfg *config.Config) (l layout, err error) {
	err = m.broker.steady(func() error {
		l, err = m.makeStreams(ctx, cfg)
		return err
	})
	return l, err
}

func (m *Manager) makeStreams(ctx context.Context, cfg *config.Config) (layout, error) {
	have, err := heldStreams(ctx, m.broker.js, m.o.MaxPayload)
	if err != nil {
		return layout{}, err
	}
	l, problems := planLayout(cfg, have, m.o.MaxBytes, m.o.MaxPayload)
	if problems != nil {
		return layout{}, problems
	}
	if err := widenReaders(ctx, m.broker.js, cfg, l); err != nil {
		return layout{}, err
	}
	for i := range l.streams {
		spec := &l.streams[i]
		if spec.Replicas == 0 {
			spec.Replicas = m.broker.replicas
		}
		if _, err := mq.EnsureStream(ctx, m.broker.js, *spec); err != nil {
			return layout{}, err
		}
	}
	if have, err = heldStreams(ctx, m.broker.js, m.o.MaxPayload); err != nil {
		return layout{}, err
	}
	created := map[string]time.Time{}
	for _, h := range have {
		created[h.name] = h.created
	}
	for _, ins := range l.inputs {
		for i := range ins {
			ins[i].created = created[ins[i].stream]
		}
	}
	limits := newLimits(have)
	for _, p := range cfg.Pipelines {
		limits.literal[p.To] = limits.of(p.To, m.o.MaxPayload) // where nearly everything goes
	}
	m.limits.Store(limits)
	return l, nil
}

// heldStreams lists what the server holds.
func heldStreams(ctx context.Context, js jetstream.JetStream, maxPayload int64) ([]held, error) {
	var have []held
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		h := held{name: info.Config.Name, subjects: info.Config.Subjects, created: info.Created, maxMsg: int64(info.Config.MaxMsgSize), ours: mq.Ours(&info.Config), queue: info.Config.Retention != jetstream.LimitsPolicy}
		if t := info.Config.SubjectTransform; parts(h.name, t) > 0 {
			h.split = t
		}
		if h.maxMsg <= 0 {
			h.maxMsg = maxPayload
		}
		have = append(have, h)
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	slices.SortFunc(have, func(a, b held) int { return cmp.Compare(a.name, b.name) })
	return have, nil
}

// Config is the running configuration.
func (m *Manager) Config() *config.Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg
}

// Drain stops all pipelines: nothing more is pulled, running handlers end and
// their messages are settled, what no worker has begun is given back at once.
// When ctx ends first the rest is given back too, and the error says so.
// The broker must still run.
func (m *Manager) Drain(ctx context.Context) error {
	m.draining.Lock()
	defer m.draining.Unlock()
	defer context.AfterFunc(ctx, m.hurry)()
	m.applying.Lock() // not for longer: who waits for it finds m.closed, and we wait for them
	m.mu.Lock()
	was := m.closed
	m.closed = true
	m.mu.Unlock()
	m.applying.Unlock()
	if was {
		return nil
	}
	m.broker.journal.stopping()
	ps := m.running()
	errs := make([]error, len(ps))
	var wg sync.WaitGroup
	for i, p := range ps {
		wg.Go(func() { errs[i] = p.drain(ctx, 0) })
	}
	wg.Wait()
	m.leaving.Wait()
	m.hurry()
	m.rescuer.close()
	m.stop()
	m.keeper.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	errs = append(errs, m.modules.close(closing, modules{}), m.broker.journal.close())
	for _, nc := range []*nats.Conn{m.broker.in, m.broker.out} {
		_ = nc.FlushWithContext(closing) // of a connection that is away nothing can be saved
		nc.Close()
	}
	return errors.Join(errs...)
}
