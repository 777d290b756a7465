package mq

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/mqrun/mqrun/subject"
)

// Sizes in bytes.
const (
	// DefaultMaxBytes is the size of a whole store unless told otherwise.
	DefaultMaxBytes = 10 << 30
	// DefaultMaxPayload is the server's limit for headers and payload together.
	DefaultMaxPayload = 1 << 20
	// PayloadReserve is what a stream's largest message stays below the server's
	// limit, so that a dead letter can hold the message and its own headers.
	PayloadReserve = 64 << 10

	minMaxBytes = 1 << 20
	minPayload  = 2 * PayloadReserve
	maxPayload  = 64 << 20 // the server's limit for what a client may have pending
)

// Options say how to open a queue. Only StoreDir or URL is needed.
type Options struct {
	// StoreDir is the folder of the embedded server. It is made when missing,
	// and belongs to one process at a time.
	StoreDir string
	// MaxBytes is the size of the whole store, 1 MiB or more; 0 is 10 GiB. See
	// [Budget].
	MaxBytes int64
	// Subjects are those of the stream MQRUN; nil is `ingest.>`. They are added
	// to what the stream holds already.
	Subjects []string
	// SyncInterval is how long a stored message may stay unsynced. 0 syncs to
	// disk before a publish is confirmed, so that it survives a power cut.
	SyncInterval time.Duration
	// Listen is the host:port for other NATS clients; "" opens no port. Port 0
	// takes a free one. A listener needs Token or NoAuth.
	Listen string
	// Token is what clients on Listen have to show. Connections from inside the
	// process and through Socket are exempt. With URL it is sent to the server.
	Token string
	// NoAuth opens Listen to everybody. It is refused off loopback.
	NoAuth bool
	// MaxPayload is the most that headers and payload of a message may have
	// together; 0 is 1 MiB. It goes from 128 KiB to 64 MiB. Streams take
	// [PayloadReserve] less.
	MaxPayload int
	// Cluster joins the server to those of other processes.
	Cluster Cluster
	// Waiting, if not nil, is told while Open waits for a cluster: what for, and
	// "" at the end. It must not block.
	Waiting func(why string)
	// Socket is the path of a unix socket that takes NATS connections from our
	// own commands; "" is none. Only the owner may use it.
	Socket string
	// URL is a NATS server to use instead of an embedded one; StoreDir and
	// everything about listening is then ignored. Several servers of one cluster
	// are split by commas.
	URL string
	// Creds and NKey are files that say who we are to the server at URL: a
	// credentials file, or the seed of an nkey. CA, Cert and Key are PEM files:
	// whom to trust, and our own certificate. All are optional.
	Creds, NKey, CA, Cert, Key string
	// Replicas is on how many servers of a cluster streams and buckets are kept;
	// 0 is 1.
	Replicas int
	// Bare makes no streams.
	Bare bool
	// Logger gets what happens in the background; nil is slog.Default.
	Logger *slog.Logger
}

// check fills in the defaults and refuses what cannot work before anything is
// touched.
func (o *Options) check() error {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = DefaultMaxPayload
	}
	if o.Subjects == nil {
		o.Subjects = []string{"ingest.>"}
	}
	for _, s := range o.Subjects {
		if err := subject.ValidFilter(s); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidSubject, err)
		}
		if subject.Reserved(s) {
			return fmt.Errorf("%w: %q reaches subjects that are reserved ($*, _INBOX.>, mqrun.>)", ErrInvalidSubject, s)
		}
	}
	if o.URL != "" {
		return checkURL(o.URL)
	}
	switch {
	case o.StoreDir == "":
		return errors.New("the store directory is empty; name a folder")
	case o.MaxBytes < minMaxBytes:
		return fmt.Errorf("a store of %d bytes is too small; give it %d at least", o.MaxBytes, minMaxBytes)
	case o.SyncInterval < 0:
		return fmt.Errorf("the sync interval %s is negative; 0 syncs always", o.SyncInterval)
	case o.MaxPayload < minPayload || o.MaxPayload > maxPayload:
		return fmt.Errorf("the largest payload of %d bytes is out of range; it goes from %d to %d", o.MaxPayload, minPayload, maxPayload)
	}
	if err := o.Cluster.check(o); err != nil {
		return err
	}
	return o.checkListen()
}

func (o *Options) checkListen() error {
	if o.Listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("%w: %q is not host:port", ErrListen, o.Listen)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%w: %q has no port number", ErrListen, o.Listen)
	}
	switch {
	case o.Token == "" && !o.NoAuth:
		return fmt.Errorf("%w: %s has no authentication; set a token", ErrListen, o.Listen)
	case o.Token == "" && !loopback(host):
		return fmt.Errorf("%w: %s without authentication is open to the network; set a token, or listen on 127.0.0.1", ErrListen, o.Listen)
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
