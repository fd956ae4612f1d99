// Package imagestest gives tests a registry on a real socket, images to put into it, and stores that pull from it.
package imagestest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"spindle/engines/images"
	"spindle/internal/netguard"
)

// Registry is a registry that serves what is pushed to it.
type Registry struct {
	// Host is "127.0.0.1:port".
	Host string
	// Front, if it is set before the first request, is asked before the registry; it answers, or returns false.
	Front func(http.ResponseWriter, *http.Request) bool
	// Client speaks to it.
	Client *http.Client
}

// NewRegistry starts a registry, over plain http or TLS, that ends with the test.
func NewRegistry(tb testing.TB, secure bool) *Registry {
	tb.Helper()
	r := &Registry{}
	next := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.Front != nil && req.Header.Get("User-Agent") != pusher && r.Front(w, req) {
			return
		}
		next.ServeHTTP(w, req)
	})
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	tb.Cleanup(srv.Close)
	r.Host, r.Client = srv.Listener.Addr().String(), srv.Client()
	return r
}

// pusher is the user agent of Push, whom Front does not see.
const pusher = "imagestest"

// Push puts an image there under a name such as "tools:1" and returns its whole name.
func (r *Registry) Push(tb testing.TB, as string, img v1.Image) string {
	tb.Helper()
	ref, err := name.ParseReference(r.Host + "/" + as)
	if err != nil {
		tb.Fatal(err)
	}
	if err := remote.Write(ref, img, remote.WithTransport(agent{r.Client.Transport})); err != nil {
		tb.Fatalf("push %s: %v", ref, err)
	}
	return ref.Name()
}

// PushIndex is Push of an image for several platforms.
func (r *Registry) PushIndex(tb testing.TB, as string, idx v1.ImageIndex) string {
	tb.Helper()
	ref, err := name.ParseReference(r.Host + "/" + as)
	if err != nil {
		tb.Fatal(err)
	}
	if err := remote.WriteIndex(ref, idx, remote.WithTransport(agent{r.Client.Transport})); err != nil {
		tb.Fatalf("push %s: %v", ref, err)
	}
	return ref.Name()
}

// agent marks requests as Push's.
type agent struct{ next http.RoundTripper }

func (a agent) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", pusher)
	return a.next.RoundTrip(req)
}

// Memory is an images.Blobs that keeps nothing. Its zero value is ready to use.
type Memory struct {
	mu sync.Mutex
	m  map[string][]byte
}

// Has implements images.Blobs.
func (b *Memory) Has(_ context.Context, digest string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.m[digest]
	return ok
}

// Put implements images.Blobs.
func (b *Memory) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(r, size+1))
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	if int64(len(text)) != size || fmt.Sprintf("sha256:%x", sha256.Sum256(text)) != digest {
		return fmt.Errorf("%w: a layer is not what its digest says", images.ErrDamaged)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m == nil {
		b.m = map[string][]byte{}
	}
	b.m[digest] = text
	return nil
}

// Open implements images.Blobs.
func (b *Memory) Open(_ context.Context, digest string) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, ok := b.m[digest]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// NewStore is a store in a folder of its own, that pulls through a guard for development.
func NewStore(tb testing.TB, change ...func(*images.Config)) *images.Store {
	tb.Helper()
	cfg := images.Config{
		Dir: filepath.Join(tb.TempDir(), "images"), Blobs: &Memory{}, Dev: true,
		Transport: netguard.New(netguard.Config{Dev: true}).HTTPClient(netguard.ClientOptions{Timeout: -1}).Transport,
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := images.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return s
}

// File is a regular file for Layer.
func File(path, content string, mode int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode, Size: int64(len(content)), PAXRecords: map[string]string{contentKey: content}}
}

// contentKey carries a file's content to Layer.
const contentKey = "IMAGESTEST.content"

// Tar is an archive of entries, as they are.
func Tar(tb testing.TB, entries ...tar.Header) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range entries {
		content := h.PAXRecords[contentKey]
		if content != "" || h.PAXRecords != nil {
			h.PAXRecords = nil
		}
		if err := w.WriteHeader(&h); err != nil {
			tb.Fatalf("write %q: %v", h.Name, err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			tb.Fatalf("write %q: %v", h.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// Layer is a layer of an archive, compressed with gzip.
func Layer(tb testing.TB, archive []byte, opts ...tarball.LayerOption) v1.Layer {
	tb.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// Image is an image of layers for this machine, with a configuration.
func Image(tb testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	tb.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		tb.Fatal(err)
	}
	return Configure(tb, img, func(c *v1.ConfigFile) { c.Config = config })
}

// Configure changes the configuration of an image for this machine.
func Configure(tb testing.TB, img v1.Image, change func(*v1.ConfigFile)) v1.Image {
	tb.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		tb.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	change(c)
	if img, err = mutate.ConfigFile(img, c); err != nil {
		tb.Fatal(err)
	}
	return img
}

// tools are the programs of Tools. Those of the second list may be missing.
var (
	tools = []string{
		"bash", "sh", "cat", "chmod", "chown", "cp", "date", "echo", "env", "false", "grep", "head", "id", "ln", "ls", "mkdir", "mknod", "mv", "od", "printenv",
		"printf", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "setsid", "sha256sum", "sleep", "sort", "stat", "tail", "touch", "tr", "true",
		"uname", "wc", "mount", "chroot", "tee", "yes", "dd", "sync", "timeout", "tar", "gzip",
	}
	libraryLine = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)
)

// Tools is a layer with a shell, the usual small programs and further ones of this machine, and the libraries that they
// need. It skips the test where they cannot be found.
func Tools(tb testing.TB, further ...string) v1.Layer {
	tb.Helper()
	b, err := ToolsTar(further...)
	if err != nil {
		tb.Skipf("no image to test with: %v", err)
	}
	return Layer(tb, b)
}

// ToolsTar is the archive behind Tools.
func ToolsTar(further ...string) ([]byte, error) {
	files := map[string]string{} // path in the image to path on this machine
	for _, name := range append(append([]string{}, tools...), further...) {
		at, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("this machine has no %s", name)
		}
		files["usr/bin/"+name] = at
		out, err := exec.Command("ldd", at).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("not a dynamic")) {
			return nil, fmt.Errorf("ldd %s: %w: %s", at, err, out)
		}
		for _, m := range libraryLine.FindAllSubmatch(out, -1) {
			files[strings.TrimPrefix(string(m[1]), "/")] = string(m[1])
		}
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "usr/bin/", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin", Mode: 0o777},
		{Typeflag: tar.TypeDir, Name: "srv/", Mode: 0o755},
	} {
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	for to, from := range files {
		b, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: 0o755, Size: int64(len(b))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(b); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
