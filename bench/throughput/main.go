// Command throughput compares mqrun with native Go programs that do the same
// job, in one process, in turns.
//
// The job: consume stored messages from JetStream, publish one output for each
// with an id, wait until the server has stored it, and ack with confirmation.
// Messages are counted in the output stream. Each engine runs in rounds, A B C
// A B C ..., on a fresh store; a warm-up is dropped from every run; the first
// native engine runs twice a round, and the ratio of the two is the noise.
//
// # Caveats
//
// Broker, engine and sink share the process and its cores: CPU a message is
// that of all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() { os.Exit(doMain()) }

func doMain() int {
	quick := flag.Bool("quick", false, "short runs that show whether it works, not how fast it is")
	report := flag.String("o", "", "write the tables as Markdown to this file")
	only := flag.String("run", "", "only the parts whose name holds this text")
	profile := flag.String("cpuprofile", "", "write a CPU profile of one engine to this file: the one that -run names in full, else mqrun with commit: each and the C guest")
	dir := flag.String("serve", "", "be a server on the store in this folder; the benchmark starts it itself")
	sync := flag.Duration("sync", 0, "with -serve: how long a message may stay unsynced")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *dir != "" {
		if err := serve(ctx, *dir, *sync); err != nil {
			fmt.Fprintln(os.Stderr, "throughput:", err)
			return 1
		}
		return 0
	}
	b := bench{ctx: ctx, profile: *profile, rounds: 5, length: 10 * time.Second, warmUp: 2 * time.Second, only: *only}
	if *quick {
		b.rounds, b.length, b.warmUp = 1, 2*time.Second, 500*time.Millisecond
	}
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, "throughput:", err)
		return 1
	}
	if *report != "" {
		if err := os.WriteFile(*report, []byte(b.markdown()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "throughput:", err)
			return 1
		}
	}
	fmt.Println("RESULT " + strings.Join(b.result, " "))
	return 0
}
