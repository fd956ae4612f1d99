package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sethvargo/go-envconfig"
	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"spindle/engines"
	"spindle/engines/sandbox"
	"spindle/internal/netguard"
)

// finding is one check of the doctor.
type finding struct {
	Name string `json:"name"`
	// Result is "ok", "warn", "fail" or "skipped".
	Result string `json:"result"`
	Says   string `json:"says"`
	Fix    string `json:"fix,omitempty"` // of a warn or fail
}

func doctorCommand(environ []string, stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "say what can run on this machine, proven by running it",
		ArgsUsage: "[engine]",
		Description: "spindle doctor engine             starts a sandbox, and asks for registries\n" +
			"It reads SPINDLE_SERVER_STATE_DIR and the settings of images, changes nothing, and needs no server.\n" +
			"Exit code 9 when something does not work.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print the findings as JSON"},
			&cli.BoolFlag{Name: "offline", Usage: "ask nobody on the network"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if g := c.Args().First(); g != "" && g != "engine" || c.Args().Len() > 1 {
				return fail(exitUsage, fmt.Errorf("unknown group %q; there is: engine", clipped(strings.Join(c.Args().Slice(), " "))))
			}
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			found, err := examine(ctx, environ, c.Bool("offline"))
			if err != nil {
				return fail(exitEnv, err)
			}
			return report(stdout, found, c.Bool("json"))
		},
	}
}

// report prints the findings and fails when one does.
func report(w io.Writer, found []finding, asJSON bool) error {
	var b strings.Builder
	bad := 0
	marks := map[string]string{"ok": "✓", "warn": "!", "fail": "✗", "skipped": "–"}
	for _, f := range found {
		if f.Result == "fail" {
			bad++
		}
		fmt.Fprintf(&b, "%s %-12s %s\n", marks[f.Result], f.Name, f.Says)
		if f.Fix != "" {
			fmt.Fprintf(&b, "               fix: %s\n", f.Fix)
		}
	}
	if asJSON {
		b.Reset()
		text, err := json.MarshalIndent(found, "", "  ")
		if err != nil {
			return fail(exitEnv, err)
		}
		b.Write(append(text, '\n'))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fail(exitEnv, fmt.Errorf("write the findings: %w", err))
	}
	if bad > 0 {
		return fail(exitEnv, fmt.Errorf("%d of %d checks failed", bad, len(found)))
	}
	return nil
}

// examine does the checks, in the order in which they explain each other.
func examine(ctx context.Context, environ []string, offline bool) ([]finding, error) {
	vars := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, "SPINDLE_") {
			vars[name] = value
		}
	}
	var c config
	if err := envconfig.ProcessWith(ctx, &envconfig.Config{Target: &c, Lookuper: envconfig.MapLookuper(vars)}); err != nil {
		return nil, fmt.Errorf("read the settings: %w", misread(err))
	}
	found := []finding{checkSandbox(ctx), checkImages(c), checkGit(c), checkDisk(c)}
	registry := finding{Name: "registry", Result: "skipped", Says: "not asked (--offline)"}
	nixery := finding{Name: "nixery", Result: "skipped", Says: "not asked (--offline)"}
	if !offline {
		registry = askRegistry(ctx, c, "registry", dockerHub(c))
		nixery = askRegistry(ctx, c, "nixery", c.Nixery)
	}
	vm := finding{Name: "microvm", Result: "skipped", Says: "this version starts no virtual machines; files with engine: microvm run in the sandbox where they can"}
	return append(found, registry, nixery, vm), nil
}

// checkSandbox starts a sandbox in a folder of its own, so that a server that runs here is not disturbed.
func checkSandbox(ctx context.Context) finding {
	f := finding{Name: "sandbox", Result: "fail"}
	dir, err := os.MkdirTemp("", "sd-")
	if err != nil {
		f.Says, f.Fix = "no temporary folder can be made: "+err.Error(), "make room, or set TMPDIR"
		return f
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil && f.Result == "ok" {
			f.Result, f.Says = "warn", "its folder could not be removed: "+err.Error()
		}
	}()
	e, err := newSandbox(dir)
	if err != nil {
		f.Says, f.Fix = err.Error(), "set TMPDIR to a folder with a short path"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	took, err := e.Probe(ctx)
	if err != nil {
		says, fix, ok := strings.Cut(engines.Public(err), "; ")
		if !ok {
			fix = "see `spindle serve`'s log for what runsc says: " + detail(err)
		}
		f.Says, f.Fix = says, fix
		return f
	}
	f.Result, f.Says = "ok", fmt.Sprintf("a command ran in gVisor, %s from nothing", took.Round(time.Millisecond))
	return f
}

func detail(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

// checkImages looks at the settings of images as the server does at its start, but for the folder, which a server may use.
func checkImages(c config) finding {
	f := finding{Name: "images", Result: "fail"}
	if _, err := c.mirrors(); err != nil {
		f.Says, f.Fix = err.Error(), "correct SPINDLE_IMAGES_MIRRORS"
		return f
	}
	if c.ImageAuth != "" {
		st, err := os.Stat(c.ImageAuth)
		switch {
		case err != nil:
			f.Says, f.Fix = "the credentials cannot be read: "+err.Error(), "correct SPINDLE_IMAGES_AUTH_FILE"
			return f
		case st.Mode().Perm()&0o077 != 0:
			f.Says, f.Fix = "others can read the credentials", "chmod 600 "+c.ImageAuth
			return f
		}
	}
	f.Result, f.Says = "ok", "workflows that name no image get "+c.ImageDefault
	if !c.ImageHost {
		f.Says += ", the machine's own tools are not shown"
	}
	return f
}

// checkGit looks for the git that the checkout and images without one need.
func checkGit(c config) finding {
	path, portable, err := sandbox.Programs(c.Git)
	if err != nil {
		return finding{Name: "git", Result: "fail", Says: "there is no git", Fix: "install git 2.39 or newer"}
	}
	if !portable {
		return finding{Name: "git", Result: "warn", Says: path + "; images without git cannot be given it", Fix: "install ldd (libc-bin)"}
	}
	return finding{Name: "git", Result: "ok", Says: path + ", which images without git get too"}
}

// lowDisk is how much room an image or two and what runs write should find.
const lowDisk = 5 << 30

func checkDisk(c config) finding {
	f := finding{Name: "disk", Result: "fail"}
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		f.Says = err.Error()
		return f
	}
	at := dir
	var st unix.Statfs_t
	for err = unix.Statfs(at, &st); errors.Is(err, unix.ENOENT) && at != "/"; err = unix.Statfs(at, &st) {
		at = filepath.Dir(at)
	}
	if err != nil {
		f.Says, f.Fix = fmt.Sprintf("%s: %v", at, err), "correct SPINDLE_SERVER_STATE_DIR"
		return f
	}
	free := int64(st.Bavail) * st.Bsize
	f.Result, f.Says = "ok", fmt.Sprintf("%.1f GiB are free for %s", float64(free)/(1<<30), dir)
	if free < lowDisk {
		f.Result, f.Fix = "warn", "make room, or lower SPINDLE_IMAGES_MAX_MB"
	}
	return f
}

func dockerHub(c config) string {
	if len(c.ImageRegistries) > 0 {
		return c.ImageRegistries[0]
	}
	return "registry-1.docker.io"
}

// askRegistry asks a registry whether it is one, on the way that pulls take. Any answer but a server's fault will do.
func askRegistry(ctx context.Context, c config, name, host string) finding {
	f := finding{Name: name, Result: "warn", Fix: "let the machine connect to port 443 of it, or ignore this where no image is pulled"}
	hosts, err := c.hosts()
	if err != nil {
		f.Says, f.Fix = err.Error(), "correct SPINDLE_SERVER_DEV_EXTRA_HOSTS"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/v2/", nil)
	if err != nil {
		f.Says, f.Fix = "not the name of a registry: "+host, "correct the setting"
		return f
	}
	client := netguard.New(netguard.Config{Dev: c.Dev, Hosts: hosts}).HTTPClient(netguard.ClientOptions{Timeout: 8 * time.Second, Redirects: 3})
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		f.Says = fmt.Sprintf("%s cannot be reached: %s", host, detail(err))
		return f
	}
	_ = res.Body.Close() // the status is all that is wanted
	if res.StatusCode >= 500 {
		f.Says = fmt.Sprintf("%s answers with status %d", host, res.StatusCode)
		return f
	}
	return finding{Name: name, Result: "ok", Says: host + " answers"}
}
