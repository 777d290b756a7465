package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mqrun/mqrun/subject"
)

// Config is one checked configuration: every value is in range and every name
// it uses exists. It is not changed after Load, so any goroutine may read it.
type Config struct {
	Dir       string               `koanf:"-"` // absolute folder of the first file; relative paths start here
	Files     []string             `koanf:"-"` // the files read, in order, as named by the caller
	Server    Server               `koanf:"server"`
	NATS      NATS                 `koanf:"nats"`
	Web       Web                  `koanf:"web"`
	Host      Host                 `koanf:"host"`
	Streams   map[string]*Stream   `koanf:"streams"`
	Plugins   map[string]*Plugin   `koanf:"plugins"`
	Pipelines map[string]*Pipeline `koanf:"pipelines"`

	// Warnings says what is allowed and gives up a promise, sorted.
	Warnings Problems `koanf:"-"`

	index index
}

// Server is the embedded JetStream server.
type Server struct {
	StoreDir   string  `koanf:"store_dir"` // absolute
	MaxBytes   int64   `koanf:"max_bytes"` // of the whole store
	Sync       Sync    `koanf:"sync"`
	Listen     string  `koanf:"listen"`      // host:port, port 0 = a free one; "" = no listener
	MaxPayload int64   `koanf:"max_payload"` // bytes of one message, headers included
	Auth       string  `koanf:"auth"`        // "" = a token is made at first start, "none", or the token
	Cluster    Cluster `koanf:"cluster"`
}

// Sync says when a stored message is on the disk: before its PubAck (Always),
// or at the latest after Interval.
type Sync struct {
	Always   bool
	Interval time.Duration
}

// NATS is a server, or a cluster, to use instead of the embedded one.
type NATS struct {
	URL      string `koanf:"url"`   // "" = the embedded server; several are split by commas. It may hold a password
	Creds    string `koanf:"creds"` // absolute path of a credentials file
	NKey     string `koanf:"nkey"`  // absolute path of a file with an nkey's seed
	TLS      TLS    `koanf:"tls"`
	Replicas int    `koanf:"replicas"` // of the streams and buckets that mqrun makes
}

// TLS is whom to trust and who we are: absolute paths of PEM files. All are
// optional; a server that asks for TLS gets it without them.
type TLS struct {
	CA   string `koanf:"ca"` // "" = the system's
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// Web is the HTTP listener for health, metrics and the API.
type Web struct {
	Listen string `koanf:"listen"` // host:port on loopback, port 0 = a free one; "" = off
}

// Host bounds all guests together.
type Host struct {
	Memory  int64 `koanf:"memory"`  // bytes
	Running int   `koanf:"running"` // guests at once; 0 = cores
}

// Stream is a stream that the file declares.
type Stream struct {
	Name            string        `koanf:"-"`
	Subjects        []string      `koanf:"subjects"`
	MaxAge          time.Duration `koanf:"max_age"`      // 0 = none
	MaxBytes        int64         `koanf:"max_bytes"`    // 0 = its share of server.max_bytes
	MaxMsgSize      int64         `koanf:"max_msg_size"` // default server.max_payload less 64 KiB
	Retention       string        `koanf:"retention"`    // limits
	Discard         string        `koanf:"discard"`      // new
	DuplicateWindow time.Duration `koanf:"duplicate_window"`
	Keep            time.Duration `koanf:"keep"`     // how long read messages stay at least; 0 = 2 x duplicate_window
	Replicas        int           `koanf:"replicas"` // 0 = Config.Replicas
}

// Plugin is a module with a name and settings.
type Plugin struct {
	Name       string            `koanf:"-"`
	Module     string            `koanf:"module"` // as written
	Path       string            `koanf:"-"`      // absolute; a regular file under Dir when Load looked
	SHA256     string            `koanf:"sha256"` // lower-case hex, "" = any content
	ABI        string            `koanf:"abi"`    // auto or mqrun_v1
	Export     string            `koanf:"export"`
	Start      string            `koanf:"start"`
	Args       []string          `koanf:"args"`
	Config     map[string]string `koanf:"-"` // top level; text as written, lists and maps as JSON
	ConfigJSON []byte            `koanf:"-"` // all of it, every scalar a string; {} when there is none
	Isolation  string            `koanf:"isolation"`
	Recycle    int               `koanf:"recycle"` // messages an instance handles before it is replaced
	Limits     Limits            `koanf:"limits"`
	Allow      Allow             `koanf:"allow"`
	Rollout    Rollout           `koanf:"rollout" json:"-"` // no part of Hash: it changes nothing of what runs

	dir string
}

// Rollout is how a changed module takes over. Off, it does so at once. On, it
// gets the share Canary of the messages for Watch; when the share of them that
// it fails is larger by more than MaxFailureRatio than what the old one fails
// meanwhile, it is rolled back, else it gets all.
type Rollout struct {
	On              bool          `koanf:"-"` // the key is there
	Canary          float64       `koanf:"canary"`
	Watch           time.Duration `koanf:"watch"`
	MaxFailureRatio float64       `koanf:"max_failure_ratio"`
}

// Limits bounds one call of one plugin.
type Limits struct {
	Memory      int64         `koanf:"memory"` // bytes of linear memory
	Timeout     time.Duration `koanf:"timeout"`
	Init        time.Duration `koanf:"init"`
	Fuel        int64         `koanf:"fuel"` // instructions; 0 = no limit
	Outputs     int           `koanf:"outputs"`
	OutputBytes int64         `koanf:"output_bytes"`
	LogLines    int           `koanf:"log_lines"`
	LogBytes    int64         `koanf:"log_bytes"`
	ReasonBytes int           `koanf:"reason_bytes"`
	Table       int           `koanf:"table"`  // elements
	Module      int64         `koanf:"module"` // bytes of the module's file
	Meter       bool          `koanf:"meter"`  // false: the plugin is trusted
}

// Allow is what a plugin may reach beyond its own message.
type Allow struct {
	Publish    []string `koanf:"publish"` // subjects or filters
	PublishSet bool     `koanf:"-"`       // false: only the pipeline's to
	KV         []string `koanf:"kv"`      // JetStream KV buckets
	Env        []string `koanf:"env"`     // variables of mqrun's own environment
}

// Pipeline moves messages from subjects through steps to a subject.
type Pipeline struct {
	Name        string        `koanf:"-"`
	From        []string      `koanf:"from"`  // filters that do not overlap
	Steps       []string      `koanf:"steps"` // names of plugins
	To          string        `koanf:"to"`    // "" = outputs must name their subject
	Start       Start         `koanf:"start"`
	Was         string        `koanf:"was"`
	Workers     int           `koanf:"workers"` // 0 = cores
	MaxInFlight int           `koanf:"max_in_flight"`
	Order       string        `koanf:"order"` // none, OrderStrict, OrderSubject or OrderHeader and a name
	Commit      string        `koanf:"commit"`
	Partitions  int           `koanf:"partitions"`
	AckWait     time.Duration `koanf:"ack_wait"`
	Retry       Retry         `koanf:"retry"`
	Breaker     Breaker       `koanf:"breaker"`
	DeadLetter  string        `koanf:"dead_letter"` // a subject, or "none": failures are acked, counted and logged
	Paused      bool          `koanf:"paused"`
}

// Start is where a new consumer begins.
type Start struct {
	Policy   string // all, new, time or sequence
	Time     time.Time
	Sequence uint64
}

// Retry is the delay between attempts: Initial, times Factor each time, at
// most Max, each shortened or lengthened by up to the share Jitter.
type Retry struct {
	Attempts int           `koanf:"attempts"`
	Initial  time.Duration `koanf:"initial"`
	Factor   float64       `koanf:"factor"`
	Max      time.Duration `koanf:"max"`
	Jitter   float64       `koanf:"jitter"`
}

// Breaker pauses a pipeline when of at least Min handler calls within Window
// the share FailureRatio ended in a failure of the plugin: a trap, a time-out,
// out of fuel or memory, an exit, a broken ABI.
type Breaker struct {
	On           bool          `koanf:"-"` // the key is there
	FailureRatio float64       `koanf:"failure_ratio"`
	Window       time.Duration `koanf:"window"`
	Min          int           `koanf:"min"`
}

// The values of order that keep one.
const (
	OrderStrict  = "strict"  // one message at a time
	OrderSubject = "subject" // one at a time of each subject
	OrderHeader  = "header:" // and a name: one at a time of each value of that header
)

// DeadLetterNone is the dead_letter that waives dead letters.
const DeadLetterNone = "none"

// Key is the name under which the server knows the pipeline: its durables, the
// ids of its outputs, its attempts, its lease and its checkpoint. A renamed
// pipeline keeps that of its first name as long as it says so with `was`.
func (p *Pipeline) Key() string {
	if p.Was != "" {
		return p.Was
	}
	return p.Name
}

// Hash is a content hash of all effective values. Two pipelines with one hash
// behave alike as long as their plugins do.
func (p *Pipeline) Hash() string { return hash(p) }

// Hash is a content hash of all effective values, without the module's bytes.
func (p *Plugin) Hash() string { return hash(p) }

func hash(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data; a NaN cannot pass the checks
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Publishes lists the subjects and filters that the pipeline may publish to,
// as a minimal sorted cover: its to, and what its steps' plugins are allowed.
// Dead letters are not among them. Nil for a pipeline that does not exist.
func (c *Config) Publishes(pipeline string) []string {
	p := c.Pipelines[pipeline]
	if p == nil {
		return nil
	}
	all := []string{p.To}
	for _, step := range p.Steps {
		if pl := c.Plugins[step]; pl != nil {
			all = append(all, pl.Allow.Publish...)
		}
	}
	return cover(all)
}

func cover(all []string) []string {
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	slices.Sort(all)
	all = slices.Compact(all)
	var out []string
	for _, s := range all {
		if !slices.ContainsFunc(all, func(o string) bool { return o != s && subject.Covers(o, s) }) {
			out = append(out, s)
		}
	}
	return out
}

// At is the place of a key, or of its nearest parent that was written:
// c.At("pipelines", "alert", "from"). List items are named by index, "0" first.
func (c *Config) At(path ...string) Position { return c.index.at(path) }

// Problem makes a problem at the place of a key. The hint is what the author
// may have meant, or "".
func (c *Config) Problem(message, hint string, path ...string) Problem {
	return c.index.problem(message, hint, path)
}

// delim separates the parts of koanf's flat keys. A dot would split subjects
// used as keys.
const delim = "\x1f"

func join(path []string) string { return strings.Join(path, delim) }
