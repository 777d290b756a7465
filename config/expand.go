package config

import (
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand puts variables into one scalar, after YAML was parsed, so that no
// value can change the structure: ${VAR}; ${VAR:-default}, which also stands
// for a variable that is set to nothing; $${ for a literal ${. Any other
// dollar is a dollar. What a variable holds is not expanded again.
func (l *loader) expand(s string) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		body, rest, closed := strings.Cut(s[i+2:], "}")
		if !closed {
			return "", bad("", `"${" without "}"; write $${ for a literal one`)
		}
		name, preset, hasPreset := strings.Cut(body, ":-")
		if strings.Contains(preset, "${") {
			return "", bad("", "a default of ${%s} cannot hold another variable", name)
		}
		if !variable.MatchString(name) {
			if n, d, ok := strings.Cut(name, ":"); ok && variable.MatchString(n) {
				return "", bad("${"+n+":-"+d+"}", "${%s} is not a variable", body)
			}
			return "", bad("", "${%s} is not a variable; write $${ for a literal ${", body)
		}
		value, set := l.env[name]
		switch {
		case hasPreset && value == "":
			value = preset
		case !set:
			return "", bad("", "the variable %s is not set; set it, or give a default: ${%s:-...}", name, name)
		}
		b.WriteString(value)
		s = rest
	}
}
