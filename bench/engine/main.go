// Command engine measures what an image costs: a sandbox in one that is here against a bare `runsc run` of the same root,
// in turns, and the pull of one that is not here.
//
// The registry is real, in this process, over loopback. The image is made of this machine's own small tools and git, with
// a further layer of many small files, which is what packages look like.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"spindle/bench/internal/measure"
	"spindle/blobs"
	"spindle/daemon"
	"spindle/engines"
	"spindle/engines/images"
	"spindle/engines/images/imagestest"
	"spindle/engines/sandbox"
	"spindle/internal/netguard"
)

func main() { measure.Main(run) }

// script prints the guest's clock.
const script = "date +%s%N"

func run(ctx context.Context) (err error) {
	n := flag.Int("n", 20, "sandboxes of each kind")
	pulls := flag.Int("pulls", 5, "cold pulls")
	files := flag.Int("files", 1000, "small files in the image")
	flag.Parse()
	binary, done, err := measure.Binary(ctx)
	if err != nil {
		return err
	}
	defer done()
	dir, err := os.MkdirTemp("", "se-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ref, stop, err := serve(*files)
	if err != nil {
		return err
	}
	defer stop()
	b := &bench{binary: binary, dir: dir, ref: ref}
	if err := b.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.store.Close()) }()
	if err := b.cold(ctx, *pulls); err != nil {
		return err
	}
	return b.starts(ctx, *n)
}

type bench struct {
	binary, dir, ref string
	disk             *blobs.Disk
	store            *images.Store
	box              *sandbox.Engine
}

func (b *bench) open() (err error) {
	if b.disk, err = blobs.New(blobs.Config{Dir: filepath.Join(b.dir, "blobs")}); err != nil {
		return err
	}
	guard := netguard.New(netguard.Config{Dev: true})
	b.store, err = images.New(images.Config{
		Dir: filepath.Join(b.dir, "images"), Blobs: daemon.ImageBytes{Disk: b.disk}, Dev: true,
		Transport: guard.HTTPClient(netguard.ClientOptions{Timeout: -1}).Transport,
	})
	if err != nil {
		return err
	}
	b.box, err = sandbox.New(sandbox.Config{Runsc: b.binary, StateDir: filepath.Join(b.dir, "s"), Images: b.store})
	return err
}

// cold pulls the image into an empty store, and again what is still there as layers.
func (b *bench) cold(ctx context.Context, n int) error {
	var pull, unpack, warm measure.Samples
	acquire := func(to *measure.Samples) error {
		began := time.Now()
		img, err := b.store.Acquire(ctx, engines.ImageRequest{Name: b.ref})
		if err != nil {
			return err
		}
		to.Add(time.Since(began))
		img.Release()
		return nil
	}
	for range n {
		b.store.Collect(0)
		if _, err := b.disk.Collect(ctx, 0); err != nil {
			return err
		}
		if err := acquire(&pull); err != nil {
			return err
		}
		b.store.Collect(0)
		if err := acquire(&unpack); err != nil {
			return err
		}
		for range 5 {
			if err := acquire(&warm); err != nil {
				return err
			}
		}
	}
	measure.Print("image_size_unpacked", float64(b.store.Used())/1e6, "MB")
	pull.Print("image_pull_cold")
	unpack.Print("image_pull_layers_here")
	warm.Print("image_acquire_warm")
	return nil
}

// starts measures the ways to a first line, in turns.
func (b *bench) starts(ctx context.Context, n int) error {
	img, err := b.store.Acquire(ctx, engines.ImageRequest{Name: b.ref})
	if err != nil {
		return err
	}
	defer img.Release()
	var bare, image, host measure.Samples
	for i := range n {
		for _, m := range []struct {
			to *measure.Samples
			do func() (time.Duration, error)
		}{
			{&bare, func() (time.Duration, error) { return b.bare(ctx, img.Root) }},
			{&image, func() (time.Duration, error) { return b.attempt(ctx, fmt.Sprintf("image-%d", i), b.ref) }},
			{&host, func() (time.Duration, error) { return b.attempt(ctx, fmt.Sprintf("host-%d", i), "") }},
		} {
			d, err := m.do()
			if err != nil {
				return err
			}
			m.to.Add(d)
		}
	}
	bare.Print("engine_bare_runsc")
	image.Print("engine_image")
	host.Print("engine_host")
	measure.Print("engine_image_to_bare", float64(image.P50())/float64(bare.P50()), "ratio")
	return nil
}

// attempt is from Open, the question to the registry included, to the clock of its first command.
func (b *bench) attempt(ctx context.Context, id, image string) (d time.Duration, err error) {
	began := time.Now()
	a, err := b.box.Open(ctx, engines.Spec{ID: id, Image: image})
	if err != nil {
		return 0, fmt.Errorf("open a sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, a.Close(context.WithoutCancel(ctx))) }()
	var out bytes.Buffer
	if _, err := a.Run(ctx, engines.Command{Script: script, Stdout: &out}); err != nil {
		return 0, fmt.Errorf("run in a sandbox: %w", err)
	}
	return since(began, out.String())
}

// bare is runsc alone with the same root and a shell.
func (b *bench) bare(ctx context.Context, root string) (d time.Duration, err error) {
	dir, err := os.MkdirTemp(b.dir, "b-")
	if err != nil {
		return 0, fmt.Errorf("make a bundle: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	text, err := json.Marshal(specs.Spec{
		Version: "1.0.2", Root: &specs.Root{Path: root},
		Process: &specs.Process{Args: []string{"/bin/sh", "-c", script}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}},
		Mounts:  []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}, {Destination: "/dev", Type: "tmpfs", Source: "tmpfs"}},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
		}},
	})
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		return 0, err
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, b.binary)
	cmd.Args = []string{"runsc", "--root=" + dir + "/r", "--network=none", "--platform=systrap", "--ignore-cgroups", "--overlay2=root:dir=" + dir, "run", "--bundle=" + dir, "x"}
	if os.Geteuid() != 0 {
		cmd.Args = append([]string{"runsc", "--rootless"}, cmd.Args[1:]...)
	}
	// gVisor binds a namespace into its folder: in a mount namespace of its own, that goes with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr = nil
	}
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("run runsc alone: %w", err)
	}
	return since(began, string(out))
}

func since(began time.Time, clock string) (time.Duration, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(clock), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the command did not print a clock but %q", clock)
	}
	return time.Unix(0, n).Sub(began), nil
}

// serve starts a registry with the image in it.
func serve(files int) (ref string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(l) // ends with ErrServerClosed
	}()
	stop = func() { _ = srv.Close(); <-ended }
	tools, err := imagestest.ToolsTar("git")
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("make an image: %w", err)
	}
	img := v1.Image(empty.Image)
	for _, b := range [][]byte{tools, many(files)} {
		layer, lerr := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		if lerr == nil {
			img, lerr = mutate.AppendLayers(img, layer)
		}
		err = errors.Join(err, lerr)
	}
	if err == nil {
		var c *v1.ConfigFile
		if c, err = img.ConfigFile(); err == nil {
			c = c.DeepCopy()
			c.OS, c.Architecture = "linux", runtime.GOARCH
			img, err = mutate.ConfigFile(img, c)
		}
	}
	ref = l.Addr().String() + "/bench:1"
	if err == nil {
		var at name.Reference
		if at, err = name.ParseReference(ref); err == nil {
			err = remote.Write(at, img)
		}
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("make an image: %w", err)
	}
	return ref, stop, nil
}

// many is an archive of small files in folders.
func many(n int) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	text := bytes.Repeat([]byte("some text of a package\n"), 150)
	for i := range n {
		// Writing to memory does not fail.
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("usr/share/p%d/f%d", i/50, i), Mode: 0o644, Size: int64(len(text))})
		_, _ = w.Write(text)
	}
	_ = w.Close()
	return buf.Bytes()
}
