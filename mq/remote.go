package mq

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// What a server must be able to do: level 2 has atomic batches.
const (
	minAPILevel = 2
	minVersion  = "2.12"
)

const dialTimeout = 5 * time.Second

// checkURL finds addresses that the client library would quote in its error,
// password and all.
func checkURL(list string) error {
	for i, one := range strings.Split(list, ",") {
		if _, err := parseURL(one); err != nil {
			return fmt.Errorf("address %d of the server is no URL such as nats://host:4222", i+1)
		}
	}
	return nil
}

func parseURL(s string) (*url.URL, error) {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	u, err := url.Parse(s)
	if err == nil && u.Host == "" {
		err = errors.New("no host")
	}
	return u, err
}

// Redacted is a list of server URLs for people: without user, password, token.
func Redacted(list string) string {
	var all []string
	for _, one := range strings.Split(list, ",") {
		if u, err := parseURL(one); err == nil {
			all = append(all, u.Scheme+"://"+u.Host)
		}
	}
	if all == nil {
		return "the server"
	}
	return strings.Join(all, ", ")
}

// remote are the options that let us in at URL.
func (o *Options) remote() ([]nats.Option, error) {
	all := []nats.Option{
		nats.Timeout(dialTimeout),
		// A key that is renewed while we run must not end the connection for good.
		nats.IgnoreAuthErrorAbort(),
	}
	if o.Token != "" {
		all = append(all, nats.Token(o.Token))
	}
	if o.Creds != "" {
		all = append(all, nats.UserCredentials(o.Creds))
	}
	if o.NKey != "" {
		opt, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nkey %s: %w", o.NKey, reason(err))
		}
		all = append(all, opt)
	}
	if o.CA != "" {
		all = append(all, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		all = append(all, nats.ClientCert(o.Cert, o.Key))
	}
	return all, nil
}

// Dial makes a connection of its own to the servers at o.URL, with what o says
// of credentials and TLS. It does not reconnect unless opts say so. The
// deadline of ctx bounds the connecting only.
func Dial(ctx context.Context, o Options, opts ...nats.Option) (*nats.Conn, error) {
	if err := checkURL(o.URL); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	all, err := o.remote()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", Redacted(o.URL), err)
	}
	all = append(all, nats.Name("mqrun"), nats.NoReconnect())
	if d, ok := ctx.Deadline(); ok {
		all = append(all, nats.Timeout(time.Until(d)))
	}
	nc, err := nats.Connect(o.URL, append(all, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", Redacted(o.URL), err)
	}
	return nc, nil
}
