// Package config reads pipelines.yaml and the environment into a checked,
// typed Config that knows where each value was written.
//
// Load puts four layers on top of one another with koanf: the defaults, the
// files in order, the environment, and settings such as flags:
//
//	MQRUN_PIPELINES__ALERT__WORKERS=4    # __ between keys, _ for -, any case
//	pipelines.alert.workers=4            # LoadOptions.Set, exact
//
// Both reach keys and names that exist: what no file names is refused, not
// made. Their values are taken as they are. An empty value is refused, since
// it is more often a mistake than a wish; "" in quotes is an empty text. A
// list is written [a, b] in every layer and replaces the whole list below it;
// one text stands for a list of one.
//
// In a file's values ${VAR} and ${VAR:-default} stand for variables, the
// default also for an empty one, and $${ is a literal ${. Expansion comes after
// YAML was parsed, so a value never changes the structure.
//
// Sizes are whole numbers with B, KB, MB, GB (powers of 1000), KiB, MiB or GiB
// (powers of 1024); durations have a unit. A plugin's config keeps every scalar
// as it was written: 0123, 1.10, true and null are texts.
//
// Everything that is wrong comes back at once, as Problems, one a line:
//
//	pipelines.yaml:7:12: pipelines.alert.steps[0]: unknown plugin "alret" (did you mean "alert"?)
//
// # Caveats
//
// YAML's anchors, aliases, merge keys and tags are refused: an unquoted
// wildcard is an alias. A named thing is defined in one file only, while the
// keys of sections such as server may come from several. When a file is not
// YAML at all, the checks between names wait until it is. What needs a
// module's content or a running server is checked by the packages above, which
// report it as Problems too.
package config
