// Command go-alert writes the alert for a strong or major earthquake. It stands
// for a plugin whose helper is not always there: one quake in ten asks for a
// second attempt.
//
// Build: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o alert.wasm ./go-alert
//
// # Caveats
//
// Which quakes need a second attempt follows from their id alone, so that every
// run retries the same ones.
package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	mqrun "github.com/mqrun/mqrun/pluginsdk/go"
)

type quake struct {
	ID         string    `json:"id"`
	Magnitude  float64   `json:"magnitude"`
	Place      string    `json:"place"`
	Time       time.Time `json:"time"`
	DepthClass string    `json:"depth_class"`
}

type alert struct {
	ID    string `json:"id"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

func init() { mqrun.Handle(handle) }

func main() { mqrun.Main() }

func handle(m *mqrun.Message) error {
	var q quake
	if err := json.Unmarshal(m.Data(), &q); err != nil {
		return mqrun.Reject("alert: " + err.Error())
	}
	if m.Attempt() == 1 && needsSecondAttempt(q.ID) {
		return mqrun.Retry("no answer for " + q.ID + "; a second attempt gets one")
	}
	out, err := json.Marshal(alert{ID: q.ID, Level: level(m.Subject()), Text: text(q)})
	if err != nil {
		return err
	}
	if err := m.AddHeader("Alert-Id", q.ID); err != nil {
		return err
	}
	return m.Emit(out)
}

// level is the last token of the subject: quakes.major is major.
func level(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}

func text(q quake) string {
	return fmt.Sprintf("M %.1f %s earthquake, %s, %s", q.Magnitude, q.DepthClass, q.Place, q.Time.Format("2 Jan 2006 15:04 MST"))
}

func needsSecondAttempt(id string) bool {
	h := fnv.New32a()
	h.Write([]byte(id))
	return h.Sum32()%10 == 0
}
