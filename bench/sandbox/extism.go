package main

import (
	"context"
	_ "embed"
	"slices"
	"time"

	extismsdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

//go:embed testdata/extism.wasm
var extismGuest []byte

// extism measures the same jobs in the Go host of Extism, with a time limit as
// it has one: in ns of CPU by call.
func extism(ctx context.Context) (map[string]float64, error) {
	plugin, err := extismsdk.NewPlugin(ctx, extismsdk.Manifest{
		Wasm: []extismsdk.Wasm{extismsdk.WasmData{Data: extismGuest}}, Timeout: 5000,
	}, extismsdk.PluginConfig{RuntimeConfig: wazero.NewRuntimeConfig(), EnableWasi: false}, nil)
	if err != nil {
		return nil, err
	}
	defer plugin.Close(ctx)
	out := map[string]float64{}
	for _, j := range []struct {
		name, function string
		size, n        int
	}{{"c_echo", "echo", 1 << 10, 200}, {"c_sum", "sum", 64 << 10, 10}} {
		data := make([]byte, j.size)
		var ns []float64
		for range 11 {
			before := cpu()
			for range j.n {
				if _, _, err := plugin.Call(j.function, data); err != nil {
					return nil, err
				}
			}
			ns = append(ns, float64(cpu()-before)/float64(j.n))
		}
		slices.Sort(ns)
		out[j.name] = ns[len(ns)/2]
	}
	return out, nil
}

// cpu is what this process used so far.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
