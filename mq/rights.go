package mq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/subject"
)

// Violation is what the server says, some time later, of a publish or a
// subscription that the account has no right to: the call itself succeeds, and
// a request just has no answer.
type Violation struct {
	Publish bool // or a subscription
	Subject string
}

func (v Violation) String() string {
	if v.Publish {
		return fmt.Sprintf("permissions violation for publish to %q", v.Subject)
	}
	return fmt.Sprintf("permissions violation for subscription to %q", v.Subject)
}

var violations = regexp.MustCompile(`(?i)violation for (publish|subscription)(?: with reply of| to) "([^"]*)"`)

// AsViolation reads an error of a connection's error handler.
func AsViolation(err error) (Violation, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return Violation{}, false
	}
	m := violations.FindStringSubmatch(err.Error())
	if m == nil {
		return Violation{}, false
	}
	return Violation{Publish: m[1][0]|0x20 == 'p', Subject: m[2]}, true
}

// Explain adds to a time-out what the server has said of a missing right on
// that connection.
func Explain(nc *nats.Conn, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	if v, ok := AsViolation(nc.LastError()); ok {
		return fmt.Errorf("%s: %w", v, err)
	}
	return err
}

// once tells what was not said within the last minute.
type once struct {
	mu   sync.Mutex
	said map[string]time.Time
}

func newOnce() *once { return &once{said: map[string]time.Time{}} }

func (o *once) again(what string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if last, ok := o.said[what]; ok && now.Sub(last) < time.Minute {
		return false
	}
	if len(o.said) > 1000 {
		clear(o.said)
	}
	o.said[what] = now
	return true
}

// Rights are what the server lets this connection's user do.
type Rights struct {
	User, Account string
	publish       permission
	subscribe     permission
}

type permission struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// refuses reports whether nothing of a filter is open. What is open in part is
// found out when it is used.
func (p permission) refuses(filter string) bool {
	if slices.ContainsFunc(p.Deny, func(d string) bool { return subject.Covers(d, filter) }) {
		return true
	}
	return len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(a string) bool { return subject.Overlap(a, filter) })
}

// Rights asks the server what we may do. A server that does not tell gives nil
// and no error: then a missing right shows when it is used.
func (e *EmbeddedNATS) Rights(ctx context.Context) (*Rights, error) { return AskRights(ctx, e.nc) }

// AskRights is Rights for any connection.
func AskRights(ctx context.Context, nc *nats.Conn) (*Rights, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask for our rights: %w", err)
	}
	var info struct {
		Data struct {
			User        string `json:"user"`
			Account     string `json:"account"`
			Permissions *struct {
				Publish   permission `json:"publish"`
				Subscribe permission `json:"subscribe"`
			} `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return nil, fmt.Errorf("ask for our rights: %w", err)
	}
	r := &Rights{User: info.Data.User, Account: info.Data.Account}
	if p := info.Data.Permissions; p != nil {
		r.publish, r.subscribe = p.Publish, p.Subscribe
	}
	return r, nil
}

// MayPublish is false when nothing of the filter is open to us.
func (r *Rights) MayPublish(filter string) bool { return !r.publish.refuses(filter) }

// MaySubscribe is false when nothing of the filter is open to us.
func (r *Rights) MaySubscribe(filter string) bool { return !r.subscribe.refuses(filter) }
