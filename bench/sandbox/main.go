// Command sandbox measures what the limits of mqrun's sandbox cost, and whether
// they hold.
//
//	go run .            the cost: the same guests without limits, with wazero's switch, metered, and in Extism
//	go run . hostile    a healthy pipeline beside hostile guests; names after it choose some
//
// Both end with a line RESULT.
//
// # Caveats
//
// Figures are CPU time of the process, so other work on the machine shows less
// in them than in wall time, and still shows. Overrun and gap are wall time: on
// a busy machine they are the machine's. Ratios are of one run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() { os.Exit(doMain()) }

func doMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context) error {
	out := flag.String("o", "", "write the table to this `file` too, as a page of the docs")
	flag.Parse()
	switch flag.Arg(0) {
	case "":
		return cost(ctx, *out)
	case "hostile":
		return hostile(ctx, flag.Args()[1:])
	}
	return fmt.Errorf("unknown argument %q; it is hostile, or none", flag.Arg(0))
}
