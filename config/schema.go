package config

import (
	"maps"
	"regexp"
	"slices"
	"time"
)

// shape is what a key holds.
type shape int

const (
	one     shape = iota // one scalar
	many                 // a list of scalars; a lone scalar is a list of one
	section              // fixed keys
	named                // a map from names to sections
	tree                 // whatever the author likes: scalars, lists, maps
)

// field is one key that a file may hold.
type field struct {
	key     string
	shape   shape
	read    scalar // one, many
	preset  string // the default, as a file would say it; "" = none
	subject bool   // takes subjects, whose wildcards must be quoted
	need    bool
	fields  []field // section, named
	name    func(name string) error
}

func key(name string, read scalar, preset string) field {
	return field{key: name, shape: one, read: read, preset: preset}
}

func list(name string, read scalar) field { return field{key: name, shape: many, read: read} }

func group(name string, fields ...field) field {
	return field{key: name, shape: section, fields: fields}
}

func byName(name string, rule func(string) error, fields ...field) field {
	return field{key: name, shape: named, name: rule, fields: fields}
}

func free(name string) field { return field{key: name, shape: tree} }

func (f field) required() field { f.need = true; return f }
func (f field) subjects() field { f.subject = true; return f }
func (f field) child(k string) (field, bool) {
	for _, c := range f.fields {
		if c.key == k {
			return c, true
		}
	}
	return field{}, false
}

// meant is the key that an unknown one most likely stands for, be it misspelt
// or what others call it.
func (f field) meant(k string) string {
	if hint := nearest(k, f.keys()); hint != "" {
		return hint
	}
	others := map[string]string{
		"dlq": "dead_letter", "subject": "from", "subjects": "from", "filter_subject": "from", "input": "from", "output": "to",
		"concurrency": "workers", "max_deliver": "retry", "backoff": "retry", "file": "module", "path": "module", "env": "allow",
	}
	hint := others[nearest(k, slices.Collect(maps.Keys(others)))]
	if _, ok := f.child(hint); !ok {
		return ""
	}
	return hint
}

func (f field) keys() []string {
	out := make([]string, len(f.fields))
	for i, c := range f.fields {
		out[i] = c.key
	}
	return out
}

// schema is every key of a file, with its kind, range and default. Ranges end
// where the server, the store or the sandbox would fail later and less clearly.
func schema() field {
	const year = 8760 * time.Hour
	return group("",
		group("server",
			key("store_dir", text, ".mqrun"),
			key("max_bytes", size(mib, 1024*tib), "10GiB"),
			key("sync", syncPolicy, "always"),
			key("listen", listen, ""),
			key("max_payload", size(128*kib, 8*mib), "1MiB"),
			key("auth", token, ""),
			free("tls"),
			group("cluster",
				key("name", clusterName, ""),
				key("listen", port, ""),
				list("routes", route),
			),
		),
		group("nats",
			key("url", natsURL, ""),
			key("creds", text, ""),
			key("nkey", text, ""),
			group("tls",
				key("ca", text, ""),
				key("cert", text, ""),
				key("key", text, ""),
			),
			key("replicas", integer(1, 5), "3"),
		),
		group("web",
			key("listen", listen, "127.0.0.1:4280"),
			key("token", token, ""),
			free("tls"),
			list("hosts", text),
			key("read_only", boolean, ""),
			key("pprof", boolean, ""),
		),
		group("host",
			key("memory", size(mib, 1024*tib), "2GiB"),
			key("running", integer(0, 4096), "0"),
		),
		byName("streams", streamName,
			list("subjects", filter).required().subjects(),
			key("max_age", duration(time.Second, 100*year), ""),
			key("max_bytes", size(mib, 1024*tib), ""),
			key("max_msg_size", size(kib, 8*mib), ""),
			key("retention", oneOf("limits", "workqueue", "interest"), "limits"),
			key("discard", oneOf("new", "old"), "new"),
			key("duplicate_window", duration(100*time.Millisecond, 24*time.Hour), "2m"),
			key("keep", duration(0, year), "1h"),
			key("replicas", integer(1, 5), ""),
		),
		byName("plugins", shortName,
			key("module", localPath, "").required(),
			key("sha256", sha256Sum, ""),
			key("abi", oneOf("auto", "mqrun_v1", "command", "extism", "redpanda"), "auto"),
			key("export", text, ""),
			list("args", line),
			key("start", text, ""),
			free("config"),
			key("isolation", oneOf("pool", "message"), "pool"),
			key("recycle", integer(1, 1e9), "100000"),
			group("limits",
				key("memory", size(64*kib, 4*gib), "64MiB"),
				key("timeout", duration(time.Millisecond, time.Hour), "5s"),
				key("init", duration(time.Millisecond, time.Hour), "5s"),
				key("fuel", integer(0, 1<<62), "0"),
				key("outputs", integer(1, 900), "900"),
				key("output_bytes", size(1, 32*mib), "8MiB"),
				key("log_lines", integer(1, 10000), "64"),
				key("log_bytes", size(1, 16*mib), "64KiB"),
				key("reason_bytes", size(1, 8*kib), "1KiB"),
				key("table", integer(1, 10_000_000), "65536"),
				key("module", size(1, gib), "32MiB"),
				key("meter", onOff, "on"),
			),
			group("allow",
				list("publish", filter).subjects(),
				list("kv", bucket),
				list("env", envName),
				list("http", text),
				list("files", text),
			),
			group("rollout",
				key("canary", percent, "10%"),
				key("watch", duration(time.Second, 24*time.Hour), "30s"),
				key("max_failure_ratio", number(0, 1), "0.05"),
			),
		),
		byName("pipelines", pipelineName,
			list("from", filter).required().subjects(),
			list("steps", text).required(),
			key("to", concrete, "").subjects(),
			key("start", startPolicy, "all"),
			key("was", text, ""),
			key("workers", integer(0, 1024), "0"),
			key("max_in_flight", integer(1, 65536), "512"),
			key("order", order, "none"),
			key("commit", oneOf("each", "batch"), "each"),
			key("partitions", integer(1, 40), "1"),
			key("ack_wait", duration(time.Second, 24*time.Hour), "30s"),
			group("retry",
				key("attempts", integer(1, 10000), "12"),
				key("initial", duration(20*time.Millisecond, 12*time.Hour), "500ms"),
				key("factor", number(1, 100), "2"),
				key("max", duration(20*time.Millisecond, 12*time.Hour), "5m"),
				key("jitter", number(0, 1), "0.2"),
			),
			key("dead_letter", deadLetter, "dlq.<name>").subjects(),
			group("breaker",
				key("failure_ratio", number(0.01, 1), "0.9"),
				key("window", duration(time.Second, time.Hour), "30s"),
				key("min", integer(1, 1_000_000), "50"),
			),
			key("paused", boolean, "false"),
			key("reply", boolean, ""),
		),
		free("bridges"),
		free("schedules"),
	)
}

// notYet is what the schema knows and this version does not do. A row without
// values refuses the key, one with values refuses those. The feature's own
// change deletes its row.
func notYet() []refusal {
	return []refusal{
		{key: "server.tls"},
		{key: "web.token"},
		{key: "web.tls"},
		{key: "web.hosts"},
		{key: "web.read_only"},
		{key: "web.pprof"},
		{key: "streams.*.retention", values: "workqueue|interest", why: "such a stream drops a message once it is read, and with it the id that keeps a repeated output from being stored twice"},
		{key: "streams.*.discard", values: "old", why: "it deletes messages that nobody has read"},
		{key: "plugins.*.abi", values: "command|extism|redpanda"},
		{key: "plugins.*.args"},
		{key: "plugins.*.start"},
		{key: "plugins.*.allow.http"},
		{key: "plugins.*.allow.files"},
		{key: "pipelines.*.paused", values: "true"},
		{key: "pipelines.*.reply"},
		{key: "bridges"},
		{key: "schedules"},
	}
}

type refusal struct {
	key    string // dotted; * is any name
	values string // a regular expression for the whole text; "" = the key itself
	why    string
}

func (r refusal) message(text string) string {
	m := "not in this version"
	if r.values != "" {
		m = quote(text) + " is not in this version"
	}
	if r.why != "" {
		m += ": " + r.why
	}
	return m
}

// refused finds the row for a key, or for a key with a value.
func refused(rows []refusal, path []string, value *string) (refusal, bool) {
	for _, r := range rows {
		if (r.values != "") != (value != nil) || !r.covers(path) {
			continue
		}
		if value == nil || regexp.MustCompile(`^(?s:`+r.values+`)$`).MatchString(*value) {
			return r, true
		}
	}
	return refusal{}, false
}
