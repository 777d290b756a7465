// Package examples holds plugins to learn from, a folder each, named after the
// language and what it does. The Go ones are the plugins of the demo's
// pipelines: go-parse, go-enrich, go-classify and go-alert.
//
// # Caveats
//
// Nothing here is imported by mqrun. The module builds with the SDK next to it,
// not with a released one.
package examples
