package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/config"
	"github.com/mqrun/mqrun/mq"
)

// deniedFor is how long a missing right shows after the server last said so.
// What is refused is tried again within 5 s.
const deniedFor = 10 * time.Second

// checkRights asks a server that is not ours what we may do there, and names
// what the configuration needs and we have no right to. In use such a right
// shows only as an answer that never comes.
func (m *Manager) checkRights(ctx context.Context, cfg *config.Config, l layout) error {
	if m.o.MQ.GetServer() != nil {
		return nil
	}
	r, err := m.o.MQ.Rights(ctx)
	if err != nil || r == nil {
		return err
	}
	if ps := missingRights(r, cfg, l); ps != nil {
		return ps
	}
	return nil
}

func missingRights(r *mq.Rights, cfg *config.Config, l layout) config.Problems {
	var ps config.Problems
	who := fmt.Sprintf("user %q of account %q", r.User, r.Account)
	publish := func(filter string, path ...string) {
		if !r.MayPublish(filter) {
			ps = append(ps, cfg.Problem(fmt.Sprintf("%s may not publish to %q (permissions violation); allow it on the server", who, filter), "", path...))
		}
	}
	if !r.MaySubscribe("_INBOX.>") {
		ps = append(ps, cfg.Problem(fmt.Sprintf("%s may not subscribe to %q (permissions violation), where all answers arrive; allow it on the server", who, "_INBOX.>"), "", "nats"))
	}
	publish("$KV."+BucketAttempts+".>", "nats")
	for _, name := range slices.Sorted(maps.Keys(cfg.Pipelines)) {
		p := cfg.Pipelines[name]
		for _, s := range cfg.Publishes(name) {
			publish(s, "pipelines", name, "to")
		}
		if p.DeadLetter != config.DeadLetterNone {
			publish(p.DeadLetter, "pipelines", name, "dead_letter")
		}
		for _, in := range l.inputs[name] {
			consumers := []string{durable(p.Key())}
			for n := range in.parts {
				consumers = append(consumers, partDurable(p.Key(), in.parts, n))
			}
			if p.Commit == "batch" {
				consumers = []string{"*"}
			}
			for _, c := range consumers {
				if c != "*" {
					publish("$JS.ACK."+in.stream+"."+c+".>", "pipelines", name, "from")
				}
				publish("$JS.API.CONSUMER.MSG.NEXT."+in.stream+"."+c, "pipelines", name, "from")
			}
		}
	}
	return ps.Sort()
}

// connectionError takes what the server says some time after a call.
func (m *Manager) connectionError(nc *nats.Conn, s *nats.Subscription, err error) {
	v, ok := mq.AsViolation(err)
	if !ok {
		where := ""
		if s != nil {
			where = s.Subject
		}
		m.o.Logger.Error("connection error", "connection", nc.Opts.Name, "subject", where, "error", err)
		return
	}
	for _, p := range m.running() {
		p.violated(v)
	}
}

// violated ends the wait for answers that will not come: publishes to the
// subject count as refused. Acks and pulls are sent again anyway.
func (p *pipeline) violated(v mq.Violation) {
	now := p.now()
	for _, s := range p.slots.busy(nil) {
		s.mu.Lock()
		if s.state == publishing && v.Publish {
			for k := range s.pubs {
				if pub := &s.pubs[k]; !pub.ok && !pub.sent.IsZero() && pub.subject == v.Subject {
					p.refused(s, pub, v.String(), now)
				}
			}
		}
		s.mu.Unlock()
	}
	for _, src := range p.sources {
		if concerns(v, src.stream, src.consumer) {
			p.deny(v, src, now)
		}
	}
}

// concerns reports whether a violation is about a consumer: its pulls, or the
// acks of its messages.
func concerns(v mq.Violation, stream, consumer string) bool {
	if a, err := mq.ParseAck(v.Subject); err == nil {
		return a.Stream == stream && a.Consumer == consumer
	}
	return strings.HasPrefix(v.Subject, "$JS.API.CONSUMER.") && strings.HasSuffix(v.Subject, "."+stream+"."+consumer)
}

// deny remembers a right that is missing. One text stands for all acks.
func (p *pipeline) deny(v mq.Violation, src *source, now time.Time) {
	if _, err := mq.ParseAck(v.Subject); err == nil {
		v.Subject = "$JS.ACK." + src.stream + "." + src.consumer + ".>"
	}
	p.mu.Lock()
	last, known := p.denied[v.String()]
	p.denied[v.String()] = now
	p.mu.Unlock()
	if !known || now.Sub(last) > deniedFor {
		p.log.Error("blocked: "+v.String()+"; allow it on the server", "stream", src.stream)
	}
}

// missing says which rights are missing now, "" for none. p.mu is held.
func (p *pipeline) missing(now time.Time) string {
	maps.DeleteFunc(p.denied, func(_ string, at time.Time) bool { return now.Sub(at) > deniedFor })
	return strings.Join(slices.Sorted(maps.Keys(p.denied)), "; ")
}

// violated says why nothing goes on. The committer looks again by itself.
func (p *tenure) violated(v mq.Violation) {
	ours := slices.ContainsFunc([]string{p.in.stream, p.out, p.name}, func(s string) bool { return strings.Contains(v.Subject, s) })
	p.mu.Lock()
	ours = ours || v.Publish && v.Subject == p.chain.cfg.DeadLetter
	p.mu.Unlock()
	if ours {
		p.committer.blocked(v.String())
	}
}
