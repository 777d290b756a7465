// Command scale takes mqrun to sizes that no test reaches: a backlog of millions,
// a thousand pipelines, a chain of a hundred steps, payloads of 7 MiB, and a soak.
// It runs the real program as a process of its own and reads its memory, CPU time
// and open files from /proc.
//
// # Caveats
//
// It needs Linux, bin/mqrun, and some 20 GiB of disk for the whole backlog.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() { os.Exit(doMain()) }

// scale runs the parts.
type scale struct {
	ctx     context.Context
	bin     string
	dir     string // a fresh folder, of one part
	backlog int
	soak    int
	logs    *os.File
	live    *program // started last
	result  []string
}

func doMain() int {
	bin := flag.String("mqrun", "bin/mqrun", "the program to run")
	backlog := flag.Int("backlog", 5_000_000, "messages that wait at the start")
	soak := flag.Int("soak", 50_000_000, "messages of the soak")
	only := flag.String("run", "backlog,idle,chain,large,soak", "the parts to run, split by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := &scale{ctx: ctx, backlog: *backlog, soak: *soak}
	var err error
	if s.bin, err = filepath.Abs(*bin); err == nil {
		err = s.run(strings.Split(*only, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		return 1
	}
	fmt.Println("RESULT " + strings.Join(s.result, " "))
	return 0
}

func (s *scale) run(names []string) error {
	parts := map[string]func() error{
		"backlog": s.backlogPart, "idle": s.idlePart, "chain": s.chainPart, "large": s.largePart, "soak": s.soakPart,
	}
	for _, name := range names {
		part, ok := parts[name]
		if !ok {
			return fmt.Errorf("no part is called %q", name)
		}
		if err := s.inFolder(part); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// inFolder gives a part a fresh folder with the guest in it.
func (s *scale) inFolder(part func() error) (err error) {
	if s.dir, err = os.MkdirTemp("", "mqrun-scale"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	wasm, err := os.ReadFile(filepath.Join("bench", "scale", "testdata", "echo.wasm"))
	if err != nil {
		return fmt.Errorf("%w; run it from the top of the repository", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "echo.wasm"), wasm, 0o600); err != nil {
		return err
	}
	if s.logs, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	defer s.logs.Close()
	defer func() {
		if s.live != nil {
			s.live.Kill() // nothing when it has ended
		}
	}()
	if err := part(); err != nil {
		log, _ := os.ReadFile(s.logs.Name()) // more than the error itself is a gift
		return errors.Join(err, fmt.Errorf("the end of its log: %s", log[max(0, len(log)-2000):]))
	}
	return nil
}

func (s *scale) figure(key, format string, v any) {
	s.result = append(s.result, key+"="+fmt.Sprintf(format, v))
	fmt.Printf("  %s "+format+"\n", key, v)
}
