package mqrun

// Config returns a value of the plugin's `config`, as text and as written in
// the file (0123 stays 0123), and whether the key is there. It asks the host
// each time: read what every message needs in [Init]. A key of "" is absent.
func Config(key string) (string, bool) {
	if key == "" {
		return "", false
	}
	text, ok := config(key)
	return string(text), ok
}

// ConfigJSON returns the plugin's whole `config` as a JSON object in which every
// scalar is a string.
func ConfigJSON() []byte {
	text, _ := config("")
	return text
}

func config(key string) ([]byte, bool) {
	text := make([]byte, 128)
	n := abiConfig(key, text)
	if n > len(text) {
		text = make([]byte, n)
		n = abiConfig(key, text)
	}
	if n < 0 {
		return nil, false
	}
	return text[:n], true
}
