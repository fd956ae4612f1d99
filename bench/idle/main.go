// Command idle measures what a server costs that has nothing to do: the size of the binary, the time from its start
// to the first good answer of /_ready, and its memory a while later.
//
// The server is the real one, `spindle serve` in a process of its own, on a small network in this process.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"spindle/bench/internal/measure"
	"spindle/devnet"
	"spindle/identity"
)

func main() { measure.Main(run) }

func run(ctx context.Context) (err error) {
	after := flag.Duration("after", time.Minute, "how long after its start the idle server's memory is read")
	n := flag.Int("n", 10, "starts to measure")
	flag.Parse()
	binary, done, err := measure.Binary(ctx)
	if err != nil {
		return err
	}
	defer done()
	info, err := os.Stat(binary)
	if err != nil {
		return fmt.Errorf("read the binary's size: %w", err)
	}
	measure.Print("binary_size", float64(info.Size())/1e6, "MB")

	network, err := devnet.Start(ctx, devnet.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	owner, err := network.CreateAccount(ctx, "alice.test")
	if err != nil {
		return err
	}
	b := bench{binary: binary, network: network, owner: owner.DID.String()}
	var first, again measure.Samples
	for range *n {
		took, err := b.twice(ctx, &again)
		if err != nil {
			return err
		}
		first.Add(took)
	}
	first.Print("idle_first_start") // makes the database and keys
	again.Print("idle_start")
	return b.idle(ctx, *after)
}

type bench struct {
	binary  string
	network *devnet.Net
	owner   string
}

// twice starts a server in an empty folder, and once more in what that one left.
func (b bench) twice(ctx context.Context, again *measure.Samples) (first time.Duration, err error) {
	dir, err := os.MkdirTemp("", "sb-")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for i := range 2 {
		s, err := b.start(ctx, dir)
		if err != nil {
			return 0, err
		}
		if err := s.stop(); err != nil {
			return 0, err
		}
		if i == 0 {
			first = s.took
		} else {
			again.Add(s.took)
		}
	}
	return first, nil
}

// idle leaves a server alone and reads its memory.
func (b bench) idle(ctx context.Context, after time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "sb-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := b.start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(after - s.took):
	}
	memory, err := status(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	for _, f := range []struct{ name, field string }{
		{"idle_rss", "VmRSS"}, {"idle_rss_anon", "RssAnon"}, {"idle_rss_file", "RssFile"}, {"idle_rss_peak", "VmHWM"},
	} {
		measure.Print(f.name, float64(memory[f.field])/1024, "MiB")
	}
	return nil
}

// server is a running `spindle serve`.
type server struct {
	cmd    *exec.Cmd
	took   time.Duration // from its start to being ready
	output *bytes.Buffer
}

func (b bench) start(ctx context.Context, dir string) (*server, error) {
	addr, err := free()
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "spindle.key")
	if _, err := os.Stat(key); errors.Is(err, os.ErrNotExist) {
		if err := identity.GenerateKeyFile(key); err != nil {
			return nil, err
		}
	}
	s := &server{cmd: exec.CommandContext(ctx, b.binary, "serve"), output: new(bytes.Buffer)}
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = s.output, s.output, dir
	s.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "SPINDLE_SERVER_DEV=true", "SPINDLE_SERVER_HOSTNAME=spindle.test",
		"SPINDLE_SERVER_OWNER=" + b.owner, "SPINDLE_SERVER_KEY_PATH=" + key, "SPINDLE_SERVER_LISTEN_ADDR=" + addr,
		"SPINDLE_SERVER_METRICS_LISTEN_ADDR=127.0.0.1:0", "SPINDLE_SERVER_DB_PATH=" + filepath.Join(dir, "spindle.db"),
		"SPINDLE_SERVER_LOG_DIR=" + filepath.Join(dir, "logs"), "SPINDLE_SERVER_REPO_DIR=" + filepath.Join(dir, "repos"),
		"SPINDLE_SERVER_STATE_DIR=" + filepath.Join(dir, "s"), "SPINDLE_SERVER_JETSTREAM_ENDPOINT=" + b.network.JetstreamURL(),
		"SPINDLE_SERVER_PLC_URL=" + b.network.PLCURL(), "SPINDLE_DRAIN_TIMEOUT=1ms",
	}
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start spindle: %w", err)
	}
	if err := s.ready(ctx, "http://"+addr+"/_ready"); err != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it was killed
		return nil, fmt.Errorf("%w; the server said: %s", err, s.output)
	}
	s.took = time.Since(began)
	return s, nil
}

// ready asks until the answer is good.
func (s *server) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("ask %s: %w", url, err)
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server did not become ready: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop spindle: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("stop spindle: %w; it said: %s", err, s.output)
	}
	return nil
}

// free is a loopback address that nobody listened on a moment ago.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	addr := l.Addr().String()
	return addr, l.Close()
}

// status reads the kilobytes of /proc/PID/status (proc_pid_status(5)).
func status(pid int) (map[string]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, fmt.Errorf("read the memory: %w", err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			if out[strings.TrimSuffix(f[0], ":")], err = strconv.Atoi(f[1]); err != nil {
				return nil, fmt.Errorf("read the memory: %w", err)
			}
		}
	}
	return out, nil
}
