package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// LoadOptions names the layers, weakest first: the defaults, Files in order,
// Env, Set.
type LoadOptions struct {
	Files []string // a directory is all its *.yaml in name order
	Env   []string // as os.Environ() has it; MQRUN_A__B overrides, ${VAR} reads
	Set   []string // a.b=c
	// Named, if set, is told every file beside Files that the configuration
	// names, its modules and secrets, before any is looked at, and also when the
	// configuration is refused: whoever watches them misses no change.
	Named func(files []string)
}

// Load reads and checks a configuration. The error is Problems, all of them
// and sorted, when what was read is wrong; otherwise it says what could not be
// read, and errors.Is finds the cause.
func Load(o LoadOptions) (*Config, error) {
	sources, dir, err := open(o.Files)
	if err != nil {
		return nil, err
	}
	return assemble(sources, dir, o)
}

func assemble(sources []source, dir string, o LoadOptions) (*Config, error) {
	l := newLoader(o)
	l.index.first = sources[0].name
	c, err := l.layers(sources, dir, o)
	if err != nil {
		return nil, err
	}
	for _, src := range sources {
		c.Files = append(c.Files, src.name)
	}
	if o.Named != nil {
		o.Named(c.named())
	}
	l.check(c)
	if len(l.problems) > 0 {
		return nil, l.problems.Sort()
	}
	c.Warnings = c.Warnings.Sort()
	return c, nil
}

func newLoader(o LoadOptions) *loader {
	l := &loader{
		schema: schema(), later: notYet(), index: newIndex(),
		env: map[string]string{}, defined: map[string]Position{}, broken: map[string]bool{},
	}
	for _, kv := range o.Env {
		name, value, _ := strings.Cut(kv, "=")
		l.env[name] = value
	}
	return l
}

// layers merges all of them into a Config that is not checked yet.
func (l *loader) layers(sources []source, dir string, o LoadOptions) (*Config, error) {
	// A fresh instance each time: a used one keeps the keys that a file lost.
	files := koanf.New(delim)
	for _, src := range sources {
		root := l.parse(src)
		if root == nil {
			l.halted = true
			continue
		}
		if err := files.Load(confmap.Provider(l.mapping(src.name, root, l.schema, nil), ""), nil); err != nil {
			return nil, fmt.Errorf("merge config file %s: %w", src.name, err)
		}
	}
	if l.halted && !l.lenient { // names of the unreadable file would all count as unknown
		return nil, l.problems.Sort()
	}
	written := files.Raw()
	k := koanf.New(delim)
	for _, layer := range []*confmap.Confmap{
		confmap.Provider(presets(l.schema, written, ""), ""),
		confmap.Provider(written, ""),
		confmap.Provider(l.environment(written), delim),
		confmap.Provider(l.flags(written, o.Set), delim),
	} {
		if err := k.Load(layer, nil); err != nil {
			return nil, fmt.Errorf("merge config: %w", err)
		}
	}
	return l.build(k.Raw(), dir)
}

// named are the files that c names: absolute paths, of what may not be there.
func (c *Config) named() []string {
	var files []string
	for _, p := range c.Plugins {
		if p.Module != "" {
			files = append(files, filepath.Join(c.Dir, p.Module))
		}
	}
	n := c.NATS
	files = append(files, n.Creds, n.NKey, n.TLS.CA, n.TLS.Cert, n.TLS.Key)
	files = slices.DeleteFunc(files, func(f string) bool { return f == "" })
	slices.Sort(files)
	return slices.Compact(files)
}

type loader struct {
	schema   field
	later    []refusal
	env      map[string]string
	index    index
	problems Problems
	defined  map[string]Position // where each named thing was defined
	broken   map[string]bool     // written, but unusable: it is not missing as well
	halted   bool                // a file is no YAML
	lenient  bool                // goes on without it
}

func (l *loader) add(at Position, path []string, hint, message string) {
	l.problems = append(l.problems, l.index.problemAt(at, message, hint, path))
}

// presets is the layer of defaults: every section, and every name that a file
// has.
func presets(f field, written map[string]any, name string) map[string]any {
	out := map[string]any{}
	for _, c := range f.fields {
		below, _ := written[c.key].(map[string]any)
		switch {
		case c.shape == section:
			out[c.key] = presets(c, below, name)
		case c.shape == named:
			all := map[string]any{}
			for n, v := range below {
				has, _ := v.(map[string]any)
				all[n] = presets(c, has, n)
			}
			out[c.key] = all
		case c.preset != "":
			out[c.key] = strings.ReplaceAll(c.preset, "<name>", name)
		}
	}
	return out
}

// build makes the typed Config from the merged texts.
func (l *loader) build(merged map[string]any, dir string) (*Config, error) {
	c := &Config{Dir: dir, index: l.index}
	dec, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: c, TagName: "koanf", ErrorUnused: true})
	if err == nil {
		err = dec.Decode(l.typed(l.schema, merged, nil))
	}
	if err != nil {
		return nil, fmt.Errorf("build config: %w", err)
	}
	written := l.index.written()
	for name, s := range c.Streams {
		s.Name = name
	}
	for name, p := range c.Pipelines {
		p.Name = name
		p.Breaker.On = written[join([]string{"pipelines", name, "breaker"})]
	}
	for _, p := range []*string{&c.Server.StoreDir, &c.NATS.Creds, &c.NATS.NKey, &c.NATS.TLS.CA, &c.NATS.TLS.Cert, &c.NATS.TLS.Key} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	plugins, _ := merged["plugins"].(map[string]any)
	for name, p := range c.Plugins {
		p.Name, p.dir = name, dir
		settings, _ := plugins[name].(map[string]any)
		free, _ := settings["config"].(map[string]any)
		p.Config, p.ConfigJSON = flatten(free)
		p.Rollout.On = written[join([]string{"plugins", name, "rollout"})]
		p.Allow.PublishSet = l.index.has("plugins", name, "allow", "publish")
	}
	return c, nil
}

// typed reads every text of the merged layers. A text that is no value was
// reported where it came from; its default stands in, so that the checks that
// follow see the rest.
func (l *loader) typed(f field, merged map[string]any, path []string) map[string]any {
	out := map[string]any{}
	for _, c := range f.fields {
		v, ok := merged[c.key]
		if !ok {
			continue
		}
		below := child(path, c.key)
		switch c.shape {
		case section:
			m, _ := v.(map[string]any)
			out[c.key] = l.typed(c, m, below)
		case named:
			all := map[string]any{}
			m, _ := v.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(m)) {
				entry, _ := m[name].(map[string]any)
				all[name] = l.typed(c, entry, child(below, name))
			}
			out[c.key] = all
		case many:
			items := []string{}
			list, _ := v.([]any)
			for _, item := range list {
				s, _ := item.(string)
				if _, err := c.read(s); err != nil {
					s = "" // keeps the places of the others
				}
				items = append(items, s)
			}
			out[c.key] = items
		case tree: // a plugin's config, which build takes as it is
		case one:
			s, _ := v.(string)
			value, err := c.read(s)
			if err == nil {
				out[c.key] = value
			}
		}
	}
	return out
}
