package mq_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/mqrun/mqrun/mq"
)

// child is what the test binary does as a second process: it opens the store
// and goes on as its role says. It answers with one word a line.
func child(role string) {
	q, err := mq.NewEmbedded(os.Getenv("MQ_TEST_STORE"), 64<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	switch role {
	case "publish": // until killed
		for i := 0; ; i++ {
			if err := q.Publish(context.Background(), "ingest.a", fmt.Appendf(nil, "%d", i)); err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(i)
		}
	case "signal": // a handler runs when SIGTERM and SIGINT come
		sig := make(chan os.Signal, 2)
		signal.Notify(sig, syscall.SIGTERM, os.Interrupt)
		done := make(chan error, 1)
		if err := q.Subscribe(context.Background(), "ingest.a", "c", func(m *mq.Message) error {
			fmt.Println("begun")
			<-sig
			<-sig
			err := m.DoubleAck(m.Ctx)
			done <- err
			return err
		}); err != nil {
			fmt.Println(err)
		}
		if err := q.Publish(context.Background(), "ingest.a", nil); err != nil {
			fmt.Println(err)
		}
		fmt.Println("acked", <-done)
		fmt.Println("closed", q.Close())
	case "hold": // until stdin ends
		fmt.Println("open")
		_, _ = io.Copy(io.Discard, os.Stdin)
		if err := q.Close(); err != nil {
			fmt.Println(err)
		}
	}
}

// spawn starts a child; next returns its lines.
func spawn(t *testing.T, role, store string) (cmd *exec.Cmd, stdin io.Closer, next func() string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe)
	cmd.Env = append(os.Environ(), "MQ_TEST_CHILD="+role, "MQ_TEST_STORE="+store)
	cmd.Stderr = io.Discard
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	lines := bufio.NewReader(out)
	return cmd, in, func() string {
		s, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
		return strings.TrimSpace(s)
	}
}
