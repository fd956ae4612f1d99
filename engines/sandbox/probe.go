package sandbox

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"spindle/engines"
)

// Probe finds out whether sandboxes run on this machine by running `true` in one, and returns how long that took
// from nothing. Its error is an *engines.Error of kind ErrUnavailable whose public sentence says the fix where one is known.
// ctx bounds it.
func (e *Engine) Probe(ctx context.Context) (time.Duration, error) {
	if err := static(e.cfg.Runsc); err != nil {
		return 0, unavailable(err.Error(), nil)
	}
	began := e.cfg.Clock.Now()
	a, err := e.Open(ctx, engines.Spec{ID: fmt.Sprintf("probe-%d", began.UnixNano())})
	if err != nil {
		return 0, unavailable(advice(e.self), err)
	}
	var said bytes.Buffer
	res, err := a.Run(ctx, engines.Command{Script: "true", Shell: "sh", Stderr: &said})
	took := e.cfg.Clock.Now().Sub(began)
	err = errors.Join(err, a.Close(context.WithoutCancel(ctx)))
	switch {
	case err != nil:
		return 0, unavailable(advice(e.self), err)
	case res.Killed != "":
		return 0, unavailable("a sandbox did not come up in time", ctx.Err())
	case res.ExitCode != 0:
		return 0, unavailable("a sandbox came up but could not run a command", fmt.Errorf("exit code %d: %s", res.ExitCode, said.String()))
	}
	return took, nil
}

func unavailable(why string, err error) error {
	return engines.Fault("sandboxes cannot run on this machine: "+why, errors.Join(engines.ErrUnavailable, err))
}

// static refuses an executable that needs a loader. gVisor executes itself again inside its own root, where
// there is none, and the failure there explains nothing.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return errors.New("its runsc executable cannot be read")
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("this spindle is dynamically linked; build it without cgo, as in CGO_ENABLED=0 go run ./cmd/spindle demo")
		}
	}
	return nil
}

// advice looks for the usual reasons. The files are the kernel's own settings (user_namespaces(7), and what
// Debian and Ubuntu add to it).
func advice(self identity) string {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return "gVisor needs Linux on amd64 or arm64"
	}
	if !self.root {
		for _, s := range []struct{ file, bad, fix string }{
			{"kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
			{"kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
			{"user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
		} {
			if b, err := os.ReadFile("/proc/sys/" + s.file); err == nil && strings.TrimSpace(string(b)) == s.bad {
				return "ordinary users may not make user namespaces here; run `" + s.fix + "` as root, or run spindle as root"
			}
		}
	}
	return "a sandbox could not be started; the server's log says what runsc reported"
}
