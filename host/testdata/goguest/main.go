//go:build wasip1

// Goguest does what its payload says, in standard Go against the raw imports.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"
)

//go:wasmimport mqrun_v1 input
func input(ptr unsafe.Pointer, room uint32) uint32

//go:wasmimport mqrun_v1 emit
func emit(subj unsafe.Pointer, slen uint32, ptr unsafe.Pointer, n uint32) int32

var state struct {
	count  int
	locked bool
	leak   [][]byte
}

func main() {}

//go:wasmexport mq_handle
func handle(size uint32) int32 {
	buf := make([]byte, size+1)
	input(unsafe.Pointer(&buf[0]), size)
	what := string(buf[:size])
	state.count++
	out := what
	switch what {
	case "echo":
	case "panic":
		state.locked = true
		panicNow()
	case "nil map":
		var m map[string]int
		m["a"] = 1
	case "exit":
		os.Exit(0)
	case "fatal":
		log.Fatal("config missing")
	case "state":
		out = fmt.Sprint(state.count, state.locked)
	case "time":
		id := make([]byte, 16)
		rand.Read(id)
		out = time.Now().UTC().Format(time.RFC3339Nano) + " " + hex.EncodeToString(id)
	case "sleep":
		time.Sleep(time.Hour)
	case "nap":
		start := time.Now()
		time.Sleep(30 * time.Millisecond)
		if time.Since(start) < 30*time.Millisecond {
			out = "too short"
		}
	case "goroutines":
		var wg sync.WaitGroup
		var mu sync.Mutex
		sum := 0
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				mu.Lock()
				sum += i
				mu.Unlock()
			})
		}
		wg.Wait()
		out = fmt.Sprint(sum)
	case "deadlock":
		<-make(chan int)
	case "recover":
		func() {
			defer func() { out = fmt.Sprint(recover()) }()
			panicNow()
		}()
	case "recurse":
		out = fmt.Sprint(recurse(0))
	case "leak":
		for {
			state.leak = append(state.leak, []byte(strings.Repeat("x", 1<<20)))
		}
	case "json":
		var v any
		if err := json.Unmarshal([]byte(`{"a":[1,2,3]}`), &v); err != nil {
			panic(err)
		}
		runtime.GC()
		b, _ := json.Marshal(v)
		out = string(b)
	case "files":
		_, err := os.ReadFile("/etc/passwd")
		out = fmt.Sprint(err != nil, len(os.Environ()), len(os.Args))
	}
	b := []byte(out)
	return emit(nil, 0, unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b)))
}

//go:noinline
func panicNow() { panic("boom") }

//go:noinline
func recurse(n int) int {
	if n < 0 {
		return 0
	}
	return recurse(n+1) + 1
}
