// Command guest uses every function of the SDK, so that its module imports all
// that the SDK can import.
//
// # Caveats
//
// It is built by a test, as a reactor for wasip1; it does nothing useful.
package main

import mqrun "github.com/mqrun/mqrun/pluginsdk/go"

func init() {
	mqrun.Init(func() error {
		_, _ = mqrun.Config("key")
		return nil
	})
	mqrun.Handle(handle)
}

func main() { mqrun.Main() }

func handle(m *mqrun.Message) error {
	if m.Attempt() > m.Attempts() {
		return mqrun.RetryAfter(m.TimeLeft(), m.Subject())
	}
	for name, value := range m.Headers() {
		if err := m.AddHeader(name, value); err != nil {
			return err
		}
	}
	if _, ok := m.Header("x"); ok {
		mqrun.Log(mqrun.Info, m.Stream())
	}
	return m.Emit(m.Data())
}
