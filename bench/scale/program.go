package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/mqrun/mqrun/mq"
	"github.com/mqrun/mqrun/test/mqprocess"
)

// program is a running mqrun and a connection to it.
type program struct {
	*mqprocess.Process
	nc    *nats.Conn
	js    jetstream.JetStream
	web   string        // host:port
	began time.Duration // from the start to ready
}

const header = `server: { store_dir: .mqrun, sync: 2m, max_bytes: 200GiB, max_payload: 8MiB }
plugins: { echo: { module: echo.wasm, limits: { output_bytes: 8MiB } } }
`

// start writes the configuration and starts mqrun on it.
func (s *scale) start(config string) (*program, error) {
	file := filepath.Join(s.dir, "pipelines.yaml")
	web, err := free()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(header+"web: { listen: "+web+" }\n"+config), 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Minute)
	defer cancel()
	began := time.Now()
	p, err := mqprocess.Start(ctx, s.bin, file, s.logs)
	if err != nil {
		return nil, err
	}
	r := &program{Process: p, web: web, began: time.Since(began)}
	s.live = r
	if r.nc, err = mq.DialSocket(ctx, filepath.Join(s.dir, ".mqrun", "sock")); err == nil {
		r.js, err = jetstream.New(r.nc, jetstream.WithPublishAsyncMaxPending(2048))
	}
	if err != nil {
		p.Kill()
		return nil, err
	}
	return r, nil
}

func (s *scale) stop(p *program) error {
	p.nc.Close()
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	return p.Stop(ctx)
}

// fill publishes n messages in turns on subjects.
func (s *scale) fill(p *program, n, size int, subjects ...string) error {
	data := []byte(strings.Repeat("x", size))
	for i := range n {
		if _, err := p.js.PublishAsync(subjects[i%len(subjects)], data); err != nil {
			return err
		}
		if i%2048 == 2047 || i == n-1 {
			select {
			case <-p.js.PublishAsyncComplete():
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		}
	}
	return nil
}

// outputs counts what was ever stored in the streams of pipelines.
func (s *scale) outputs(p *program, streams ...string) (int, error) {
	n := 0
	for _, name := range streams {
		st, err := p.js.Stream(s.ctx, name)
		if err != nil {
			return 0, err
		}
		n += int(st.CachedInfo().State.LastSeq)
	}
	return n, nil
}

// await samples until n outputs are there; watch sees every sample.
func (s *scale) await(p *program, n int, watch func(usage), streams ...string) error {
	last, at := -1, time.Now()
	for {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
		got, err := s.outputs(p, streams...)
		if err != nil {
			return err
		}
		u, err := p.usage()
		if err != nil {
			return err
		}
		watch(u)
		if got >= n {
			return nil
		}
		if got != last {
			last, at = got, time.Now()
		} else if time.Since(at) > time.Minute {
			return fmt.Errorf("%d of %d outputs after a minute without one", got, n)
		}
	}
}

// usage is what the system knows of the process.
type usage struct {
	mib        float64 // resident
	files      int
	goroutines int // zero until somebody asks for them
	cpu        time.Duration
}

func (p *program) usage() (usage, error) {
	dir := "/proc/" + strconv.Itoa(p.PID())
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return usage{}, err
	}
	var u usage
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == "VmRSS:" {
			kib, _ := strconv.ParseFloat(f[1], 64) // the kernel wrote it
			u.mib = kib / 1024
		}
	}
	files, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return usage{}, err
	}
	u.files = len(files)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return usage{}, err
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	u.cpu = time.Duration(user+system) * time.Second / 100 // USER_HZ is 100 on Linux
	return u, nil
}

// kill ends the program at once.
func (p *program) kill() error {
	p.nc.Close()
	err := p.Signal(syscall.SIGKILL)
	p.Kill()
	return err
}
