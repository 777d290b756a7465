package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/mqrun/mqrun/host"
)

const (
	runFor = 4 * time.Second
	warmUp = time.Second
	burn   = 5 * time.Millisecond // a call of the well-behaved guest
	rounds = 3                    // of which the median counts
)

// beside is a healthy pipeline's run beside another one.
type beside struct {
	rate float64 // messages a second that came out
	p99  time.Duration
	cpu  float64 // cores that the process took
}

// hostile compares a healthy pipeline at a quarter of what it can do beside each
// hostile guest with the same beside a guest that burns as much CPU in short calls.
func hostile(ctx context.Context, names []string) error {
	if len(names) == 0 {
		names = []string{"loop", "fork", "bulk", "chase", "logs", "naps", "trap"}
	}
	times, err := calibrate(ctx)
	if err != nil {
		return err
	}
	full, err := capacity(ctx)
	if err != nil {
		return err
	}
	rate := full / 4
	fmt.Printf("A healthy pipeline takes %.0f messages a second alone; here it gets %.0f. Cores are those of the whole process.\n\n", full, rate)
	fmt.Println("| beside | rate | p99 | cores | well-behaved: rate | p99 | cores |")
	fmt.Println("|---|---|---|---|---|---|---|")
	worstRate, worstP99 := math.Inf(1), 0.0
	calm := binary.LittleEndian.AppendUint32(nil, times)
	for _, name := range names {
		var rates, p99s []float64
		for range rounds {
			good, err := runBeside(ctx, filepath.Join("testdata", "burn.wasm"), calm, rate)
			if err != nil {
				return fmt.Errorf("beside the well-behaved guest: %w", err)
			}
			bad, err := runBeside(ctx, hostGuest("hostile/"+name), nil, rate)
			if err != nil {
				return fmt.Errorf("beside %s: %w", name, err)
			}
			fmt.Printf("| %s | %.0f/s | %s | %.2f | %.0f/s | %s | %.2f |\n", name, bad.rate, bad.p99, bad.cpu, good.rate, good.p99, good.cpu)
			rates = append(rates, bad.rate/good.rate)
			p99s = append(p99s, float64(bad.p99)/float64(good.p99))
		}
		slices.Sort(rates)
		slices.Sort(p99s)
		worstRate = min(worstRate, rates[rounds/2])
		worstP99 = max(worstP99, p99s[rounds/2])
	}
	fmt.Printf("RESULT rate=%.3f p99_ratio=%.2f\n", worstRate, worstP99)
	return nil
}

func hostGuest(name string) string {
	return filepath.Join("..", "..", "host", "testdata", filepath.FromSlash(name)+".wasm")
}

// calibrate finds how often the well-behaved guest goes round in a call.
func calibrate(ctx context.Context) (uint32, error) {
	wasm, err := os.ReadFile(filepath.Join("testdata", "burn.wasm"))
	if err != nil {
		return 0, err
	}
	r, err := host.New(ctx, host.Options{})
	if err != nil {
		return 0, err
	}
	defer r.Close(ctx)
	p, err := r.Load(ctx, wasm, host.Settings{Name: "burn"})
	if err != nil {
		return 0, err
	}
	const n = 10_000_000
	m := &host.Message{Data: binary.LittleEndian.AppendUint32(nil, n)}
	var best time.Duration = math.MaxInt64
	for range 5 {
		before := cpu()
		if err := p.Handle(ctx, m, &host.Result{}); err != nil {
			return 0, err
		}
		best = min(best, cpu()-before)
	}
	return uint32(n * float64(burn) / float64(best)), nil
}

// capacity is how many messages a second the healthy pipeline takes alone.
func capacity(ctx context.Context) (float64, error) {
	e, err := start(ctx, hostGuest("echo"))
	if err != nil {
		return 0, err
	}
	defer e.stop()
	const n = 30_000
	out := make(chan struct{}, n)
	if _, err := e.nc.Subscribe("healthy.out", func(*nats.Msg) { out <- struct{}{} }); err != nil {
		return 0, err
	}
	began := time.Now()
	for range n {
		if err := e.publish("healthy.in", make([]byte, 256)); err != nil {
			return 0, err
		}
	}
	for range n {
		select {
		case <-out:
		case <-time.After(30 * time.Second):
			return 0, errors.New("messages are missing")
		}
	}
	return n / time.Since(began).Seconds(), nil
}

// runBeside keeps another pipeline busy with module, and feeds the healthy one.
func runBeside(ctx context.Context, module string, data []byte, rate float64) (*beside, error) {
	e, err := start(ctx, module)
	if err != nil {
		return nil, err
	}
	defer e.stop()
	lags := make(chan time.Duration, int(rate*runFor.Seconds())+1000)
	began := time.Now()
	if _, err := e.nc.Subscribe("healthy.out", func(m *nats.Msg) {
		sent := time.Duration(binary.LittleEndian.Uint64(m.Data))
		if at := time.Since(began); sent > warmUp && at < runFor {
			lags <- at - sent
		}
	}); err != nil {
		return nil, err
	}
	for range int(2*runFor/burn) * 2 {
		if err := e.publish("other.in", data); err != nil {
			return nil, err
		}
	}
	before := cpu()
	began = time.Now()
	body := make([]byte, 256)
	for n := 0; ; {
		at := time.Since(began)
		if at > runFor {
			break
		}
		for due := int(at.Seconds() * rate); n < due; n++ {
			binary.LittleEndian.PutUint64(body, uint64(time.Since(began)))
			if err := e.publish("healthy.in", slices.Clone(body)); err != nil {
				return nil, err
			}
		}
		time.Sleep(time.Millisecond)
	}
	b := &beside{cpu: (cpu() - before).Seconds() / time.Since(began).Seconds()}
	e.nc.Close()
	close(lags)
	var all []time.Duration
	for l := range lags {
		all = append(all, l)
	}
	if len(all) == 0 {
		return nil, errors.New("nothing came out")
	}
	slices.Sort(all)
	b.rate = float64(len(all)) / (runFor - warmUp).Seconds()
	b.p99 = all[len(all)*99/100].Round(10 * time.Microsecond)
	return b, nil
}
