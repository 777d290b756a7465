// Command mqrun is a message queue that runs your code: an embedded NATS
// JetStream server, a WebAssembly sandbox, and a pipelines.yaml that says which
// subject goes through which plugin and where the outputs go.
//
//	mqrun run         run the pipelines of pipelines.yaml
//	mqrun validate    check it: the same path as run, without the start
//	mqrun pub         publish one message, or the lines of a file
//	mqrun dlq ls      list dead letters; show, replay, purge, log
//	mqrun sub         print the messages of a subject
//	mqrun status      what the pipelines do
//	mqrun explain     a pipeline in words
//	mqrun consumers   list the pipelines' consumers, remove what is left of one
//	mqrun streams     which subjects lie elsewhere than a new store would put them
//	mqrun version     versions of what is built in
//
// Data goes to stdout, everything else to stderr. Exit codes: 0 done, 1 failed,
// 2 usage, 3 invalid configuration or plugin, 130 interrupted.
//
// # Caveats
//
// The commands other than run and validate need a running mqrun: they reach it
// over the socket in its store directory, or at the URL given with -s.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// doMain runs one command and returns its exit code. The first interrupt asks
// the command to end, the second one does not wait for it.
func doMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	c := &cli{stdin: stdin, stdout: stdout, stderr: stderr, env: os.Environ()}
	done := make(chan int, 1)
	go func() { done <- c.execute(ctx, args) }()
	for first := true; ; first = false {
		select {
		case code := <-done:
			return code
		case <-signals:
			if !first {
				return exitInterrupted
			}
			cancel(errInterrupted)
		}
	}
}
