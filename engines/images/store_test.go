package images_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"spindle/blobs"
	"spindle/engines"
	"spindle/engines/images"
	"spindle/engines/images/imagestest"
	"spindle/internal/netguard"
)

// envPuller makes the test binary a server that is killed while it pulls; see TestKillDuringPull.
const envPuller = "SPINDLE_TEST_PULL"

func TestMain(m *testing.M) {
	if job := os.Getenv(envPuller); job != "" {
		dir, name, _ := strings.Cut(job, " ")
		pullUntilKilled(dir, name)
		return
	}
	os.Exit(m.Run())
}

// lines collects progress.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func acquire(t *testing.T, s *images.Store, name string) (*engines.Image, string, error) {
	t.Helper()
	var l lines
	img, err := s.Acquire(t.Context(), engines.ImageRequest{Name: name, Progress: l.add})
	if img != nil {
		t.Cleanup(img.Release)
	}
	return img, l.String(), err
}

// refused checks that an image cannot be had, and gives the sentence for users.
func refused(t *testing.T, s *images.Store, name string, kind error) string {
	t.Helper()
	img, said, err := acquire(t, s, name)
	require.ErrorIs(t, err, kind, said)
	require.Nil(t, img)
	var e *engines.Error
	require.ErrorAs(t, err, &e)
	return e.Public
}

// small is an image with a shell of no use and a file.
func small(t *testing.T, content string, more ...tar.Header) v1.Image {
	t.Helper()
	base := imagestest.Layer(t, imagestest.Tar(t, imagestest.File("bin/sh", "#!", 0o755), imagestest.File("etc/passwd", "root:x:0:0::/:/bin/sh\n", 0o644)))
	top := imagestest.Layer(t, imagestest.Tar(t, append([]tar.Header{imagestest.File("content", content, 0o644)}, more...)...))
	return imagestest.Image(t, v1.Config{Env: []string{"PATH=/opt/bin:/bin", "LEVEL=high"}}, base, top)
}

func content(t *testing.T, img *engines.Image) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(img.Root, "content"))
	require.NoError(t, err)
	return string(b)
}

func TestPull(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	var asked atomic.Int64
	reg.Front = func(_ http.ResponseWriter, _ *http.Request) bool { asked.Add(1); return false }
	base := imagestest.Layer(t, imagestest.Tar(t, imagestest.File("usr/bin/sh", "#!", 0o755), tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin"},
		imagestest.File("usr/bin/git", "#!", 0o755), imagestest.File("a", "lower", 0o600), imagestest.File("b", "lower", 0o644), tar.Header{Typeflag: tar.TypeChar, Name: "dev/null"}))
	zst := imagestest.Layer(t, imagestest.Tar(t, imagestest.File("b", "upper", 0o644), imagestest.File(".wh.a", "", 0o644)),
		tarball.WithCompression(compression.ZStd), tarball.WithMediaType(types.OCILayerZStd))
	img := imagestest.Image(t, v1.Config{Env: []string{"PATH=/bin", "LEVEL=high"}, User: "7:8"}, base, zst)
	ref := reg.Push(t, "tools:1", img)
	s := imagestest.NewStore(t)
	got, said, err := acquire(t, s, ref)
	require.NoError(t, err)
	for _, want := range []string{"pulling image " + ref, "2 layers", "layer 2 of 2", "1 entries", "is ready after"} {
		require.Contains(t, said, want)
	}
	digest, err := img.Digest()
	require.NoError(t, err)
	require.Equal(t, digest.String(), got.Digest)
	require.Equal(t, []string{"PATH=/bin", "LEVEL=high"}, got.Env)
	require.Equal(t, []any{7, 8, "7", false, true}, []any{got.UID, got.GID, got.User, got.Bash, got.Git})
	b, err := os.ReadFile(filepath.Join(got.Root, "b"))
	require.NoError(t, err)
	require.Equal(t, "upper", string(b))
	require.NoFileExists(t, filepath.Join(got.Root, "a"))
	passwd, err := os.ReadFile(filepath.Join(got.Root, "etc/passwd"))
	require.NoError(t, err)
	require.Equal(t, "root:x:0:0:root:/root:/bin/sh\nspindle-workflow:x:1000:1000:spindle-workflow:/home/spindle-workflow:/bin/sh\n", string(passwd))
	st, err := os.Stat(filepath.Join(got.Root, "tmp"))
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|fs.ModeSticky|0o777, st.Mode())

	again, said, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, got.Root, again.Root)
	require.Contains(t, said, "is here already ("+digest.String()+")")
	asked.Store(0)
	pinned, _, err := acquire(t, s, reg.Host+"/tools@"+digest.String())
	require.NoError(t, err)
	require.Equal(t, got.Root, pinned.Root)
	require.Zero(t, asked.Load(), "what is pinned and here needs no network")
}

// TestLowerLayersAreNotWritten: what an image gets of ours does not reach other images by their shared layers.
func TestLowerLayersAreNotWritten(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	s := imagestest.NewStore(t)
	one, _, err := acquire(t, s, reg.Push(t, "one:1", small(t, "1")))
	require.NoError(t, err)
	used := s.Used()
	two, said, err := acquire(t, s, reg.Push(t, "two:1", small(t, "2", imagestest.File("etc/.wh.passwd", "", 0o644))))
	require.NoError(t, err)
	require.Less(t, s.Used(), 2*used, "the lower layer is there once")
	require.NotContains(t, said, "layer 1 of 2", "what is here is not pulled")
	require.Equal(t, "12", content(t, one)+content(t, two))
	a, err := os.Stat(filepath.Join(one.Root, "bin/sh"))
	require.NoError(t, err)
	b, err := os.Stat(filepath.Join(two.Root, "bin/sh"))
	require.NoError(t, err)
	require.True(t, os.SameFile(a, b))
	p, err := os.ReadFile(filepath.Join(one.Root, "etc/passwd"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(p), "root:x:0:0::/:/bin/sh\n"))
}

// TestB066WhyAnImageIsNotThere: the reason that a person can do something about, with the name and the registry's
// own words, for each kind of failure.
func TestB066WhyAnImageIsNotThere(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	answers := map[string]func(w http.ResponseWriter, r *http.Request){
		"private": func(w http.ResponseWriter, _ *http.Request) {
			problem(w, 401, "UNAUTHORIZED", "authentication required")
		},
		"denied": func(w http.ResponseWriter, _ *http.Request) { problem(w, 403, "DENIED", "requested access is denied") },
		"limited": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			problem(w, 429, "TOOMANYREQUESTS", "slow down")
		},
		"broken": func(w http.ResponseWriter, _ *http.Request) {
			problem(w, 501, "UNSUPPORTED", "never heard of \x1b[31mthat")
		},
		"circle": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		},
		"teapot":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"endless": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, endless{}, 20<<20) },
		"nonsense": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
			_, _ = io.WriteString(w, "{nonsense")
		},
		"metadata": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusTemporaryRedirect)
		},
	}
	reg.Front = func(w http.ResponseWriter, r *http.Request) bool {
		for name, answer := range answers {
			if strings.Contains(r.URL.Path, "/"+name+"/") {
				answer(w, r)
				return true
			}
		}
		return false
	}
	s := imagestest.NewStore(t)
	closed := imagestest.NewRegistry(t, false).Host
	reg.Push(t, "tools:1", small(t, "x"))
	for name, c := range map[string]struct {
		kind error
		want []string
	}{
		reg.Host + "/no-such-image:1":          {images.ErrNotFound, []string{"there is no image", "/no-such-image:1", "it says: ", "leave the image out"}},
		reg.Host + "/tools:2":                  {images.ErrNotFound, []string{"/tools:2", "tag"}},
		reg.Host + "/private:1":                {images.ErrUnauthorised, []string{"it says: authentication required", "credentials"}},
		reg.Host + "/denied:1":                 {images.ErrUnauthorised, []string{"it says: requested access is denied"}},
		reg.Host + "/limited:1":                {images.ErrRateLimited, []string{"asks to wait 1h0m0s", "mirror"}},
		reg.Host + "/broken:1":                 {images.ErrUnreachable, []string{"status 501", "never heard of [31mthat"}},
		reg.Host + "/teapot:1":                 {images.ErrUnreachable, []string{"status 418"}},
		reg.Host + "/circle:1":                 {images.ErrUnreachable, []string{"redirects"}},
		reg.Host + "/endless:1":                {images.ErrTooLarge, []string{"more than a description"}},
		reg.Host + "/nonsense:1":               {images.ErrDamaged, []string{"manifest cannot be read"}},
		"192.0.2.1/x:1":                        {images.ErrNotAllowed, []string{"may not connect to 192.0.2.1"}},
		"https://u:s3cret@host/x":              {images.ErrReference, []string{"without a scheme or credentials"}},
		"u:s3cret@host/x":                      {images.ErrReference, []string{"without a scheme or credentials"}},
		"golang@u:p":                           {images.ErrReference, []string{"without a scheme or credentials"}},
		"UPPER/Case:1":                         {images.ErrReference, []string{"lower case"}},
		"-rf":                                  {images.ErrReference, []string{"is not the name of an image"}},
		"a b":                                  {images.ErrReference, []string{"is not the name of an image"}},
		"":                                     {images.ErrReference, nil},
		strings.Repeat("a", 600):               {images.ErrReference, []string{"512 bytes"}},
		"x@sha512:" + strings.Repeat("a", 128): {images.ErrReference, []string{"sha256"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sentence := refused(t, s, name, c.kind)
			for _, want := range c.want {
				require.Contains(t, sentence, want)
			}
			require.NotContains(t, sentence, "s3cret")
			require.NotContains(t, sentence, "\x1b")
		})
	}
	require.NotEmpty(t, refused(t, s, reg.Host+"/metadata:1", images.ErrNotAllowed))
	require.ErrorIs(t, images.ErrNotFound, engines.ErrUnknownImage)
	_ = closed
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// problem answers as registries do (the distribution specification, "error codes").
func problem(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

// TestFaultsAreRetried: a registry that stumbles is asked again, and the log says so.
func TestFaultsAreRetried(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	var manifests, blobsAsked atomic.Int64
	reg.Front = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/") && r.Method == http.MethodGet && manifests.Add(1) == 1:
			problem(w, 503, "UNAVAILABLE", "back in a moment")
		case strings.Contains(r.URL.Path, "/manifests/") && r.Method == http.MethodHead:
			w.WriteHeader(http.StatusMethodNotAllowed) // some do not know the method
		case strings.Contains(r.URL.Path, "/blobs/") && blobsAsked.Add(1) == 2:
			w.Header().Set("Content-Length", "100000") // cut in the middle
			_, _ = io.WriteString(w, "short")
		default:
			return false
		}
		return true
	}
	s := imagestest.NewStore(t)
	img, said, err := acquire(t, s, reg.Push(t, "tools:1", small(t, "x")))
	require.NoError(t, err, said)
	require.Equal(t, "x", content(t, img))
	require.Contains(t, said, "back in a moment")
	require.Contains(t, said, "trying again in 500ms")
}

// TestWrongContent: a layer that is not what the manifest says is refused, and leaves nothing.
func TestWrongContent(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	img := small(t, "x")
	layers, err := img.Layers()
	require.NoError(t, err)
	top, err := layers[1].Digest()
	require.NoError(t, err)
	n, err := layers[1].Size()
	require.NoError(t, err)
	var evil atomic.Value
	reg.Front = func(w http.ResponseWriter, r *http.Request) bool {
		b, _ := evil.Load().([]byte)
		if b == nil || !strings.HasSuffix(r.URL.Path, top.String()) {
			return false
		}
		_, _ = w.Write(b)
		return true
	}
	ref := reg.Push(t, "tools:1", img)
	s := imagestest.NewStore(t)
	for name, b := range map[string][]byte{"other": bytes.Repeat([]byte("x"), int(n)), "longer": bytes.Repeat([]byte("x"), int(n)+10), "huge": make([]byte, 4<<20)} {
		evil.Store(b)
		require.Contains(t, refused(t, s, ref, images.ErrDamaged), "is damaged", name)
	}
	evil.Store([]byte(nil))
	got, _, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "x", content(t, got))

	lying := imagestest.Configure(t, img, func(c *v1.ConfigFile) {
		c.RootFS.DiffIDs[1] = v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	})
	require.Contains(t, refused(t, s, reg.Push(t, "lying:1", lying), images.ErrDamaged), "unpacks to")
	fewer := imagestest.Configure(t, img, func(c *v1.ConfigFile) { c.RootFS.DiffIDs = c.RootFS.DiffIDs[:1] })
	require.Contains(t, refused(t, s, reg.Push(t, "fewer:1", fewer), images.ErrDamaged), "2 layers")
	hostile := imagestest.Image(t, v1.Config{}, imagestest.Layer(t, imagestest.Tar(t, imagestest.File("../../evil", "x", 0o644))))
	require.Contains(t, refused(t, s, reg.Push(t, "hostile:1", hostile), images.ErrUnsafe), "points outside")
	bare := imagestest.Image(t, v1.Config{}, imagestest.Layer(t, imagestest.Tar(t, imagestest.File("app", "x", 0o755))))
	require.Contains(t, refused(t, s, reg.Push(t, "bare:1", bare), images.ErrNoShell), "/bin/sh")
	stranger := imagestest.Configure(t, img, func(c *v1.ConfigFile) { c.Config.User = "nobody-here" })
	require.Contains(t, refused(t, s, reg.Push(t, "stranger:1", stranger), images.ErrDamaged), "nobody-here")
}

func TestPlatforms(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	s := imagestest.NewStore(t)
	add := func(os, arch, content string) mutate.IndexAddendum {
		img := imagestest.Configure(t, small(t, content), func(c *v1.ConfigFile) { c.OS, c.Architecture = os, arch })
		return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: os, Architecture: arch}}}
	}
	all := mutate.AppendManifests(empty.Index, add("windows", runtime.GOARCH, "w"), add("linux", "riscv64", "r"), add("linux", runtime.GOARCH, "mine"))
	img, _, err := acquire(t, s, reg.PushIndex(t, "all:1", all))
	require.NoError(t, err)
	require.Equal(t, "mine", content(t, img))
	top, err := all.Digest()
	require.NoError(t, err)
	pinned, _, err := acquire(t, s, reg.Host+"/all@"+top.String())
	require.NoError(t, err)
	require.Equal(t, img.Root, pinned.Root, "the digest of an index is a pin too")

	others := mutate.AppendManifests(empty.Index, add("windows", "amd64", "w"), add("linux", "riscv64", "r"))
	sentence := refused(t, s, reg.PushIndex(t, "others:1", others), images.ErrPlatform)
	require.Contains(t, sentence, "it is for linux/riscv64, windows/amd64")
	require.Contains(t, sentence, "linux on "+runtime.GOARCH)
	alone := imagestest.Configure(t, small(t, "x"), func(c *v1.ConfigFile) { c.Architecture = "s390x" })
	require.Contains(t, refused(t, s, reg.Push(t, "alone:1", alone), images.ErrPlatform), "linux/s390x")
}

// TestTagsMove: a tag is asked again each time, and what it was is served, with a word, while its registry is down.
func TestTagsMove(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	var down atomic.Bool
	reg.Front = func(w http.ResponseWriter, _ *http.Request) bool {
		if down.Load() {
			problem(w, 501, "UNSUPPORTED", "closed for today")
		}
		return down.Load()
	}
	s := imagestest.NewStore(t)
	ref := reg.Push(t, "tools:latest", small(t, "old"))
	img, _, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "old", content(t, img))
	reg.Push(t, "tools:latest", small(t, "new"))
	img, _, err = acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "new", content(t, img))
	down.Store(true)
	img, said, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "new", content(t, img))
	require.Contains(t, said, "closed for today")
	require.Contains(t, said, "as it was here last (sha256:")
	refused(t, s, reg.Host+"/other:1", images.ErrUnreachable)
}

// TestCredentials: they are shown to their registry alone, for trusted runs alone, and told to nobody.
func TestCredentials(t *testing.T) {
	t.Parallel()
	const password = "pa55w0rd-of-the-registry"
	auth := base64.StdEncoding.EncodeToString([]byte("robot:" + password))
	reg := imagestest.NewRegistry(t, false)
	other := imagestest.NewRegistry(t, false)
	var open atomic.Bool
	reg.Front = func(w http.ResponseWriter, r *http.Request) bool {
		if open.Load() || r.Header.Get("Authorization") == "Basic "+auth {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		problem(w, 401, "UNAUTHORIZED", "authentication required")
		return true
	}
	other.Front = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "" {
			t.Error("another registry was shown the credentials")
		}
		return false
	}
	file := filepath.Join(t.TempDir(), "auth.json")
	write := func(text string, mode fs.FileMode) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chmod(file, mode))
	}
	right := fmt.Sprintf(`{"auths":{"http://%s/v2/":{"auth":%q},"https://index.docker.io/v1/":{"auth":"eDp5"}}}`, reg.Host, auth)
	write(right, 0o600)
	var log bytes.Buffer
	s := imagestest.NewStore(t, func(c *images.Config) { c.AuthFile, c.Log = file, slog.New(slog.NewTextHandler(&log, nil)) })
	ref := reg.Push(t, "private:1", small(t, "secret thing"))
	untrusted := func() (*engines.Image, error) {
		img, err := s.Acquire(t.Context(), engines.ImageRequest{Name: ref, Untrusted: true})
		if img != nil {
			t.Cleanup(img.Release)
		}
		return img, err
	}
	_, err := untrusted()
	require.ErrorIs(t, err, images.ErrUnauthorised)
	img, said, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "secret thing", content(t, img))
	_, err = untrusted()
	require.ErrorIs(t, err, images.ErrUnauthorised, "not from the disk either")
	pinned := ref[:strings.LastIndex(ref, ":")] + "@" + img.Digest
	_, err = s.Acquire(t.Context(), engines.ImageRequest{Name: pinned, Untrusted: true})
	require.ErrorIs(t, err, images.ErrUnauthorised, "nor by its digest")
	_, _, err = acquire(t, s, other.Push(t, "public:1", small(t, "p")))
	require.NoError(t, err)
	open.Store(true)
	_, err = untrusted()
	require.NoError(t, err, "it became public")
	open.Store(false)

	write(strings.ReplaceAll(right, auth, "eDp5"), 0o600)
	sentence := refused(t, s, ref, images.ErrUnauthorised)
	for _, bad := range []string{"{" + password, `{"auths":[]}`} {
		write(bad, 0o600)
		sentence += refused(t, s, ref, engines.ErrUnavailable)
	}
	for _, text := range []string{said, sentence, log.String()} {
		require.NotContains(t, text, password)
		require.NotContains(t, text, auth)
	}
	write(right, 0o644)
	_, err = images.New(images.Config{Dir: t.TempDir(), Blobs: &imagestest.Memory{}, Transport: http.DefaultTransport, AuthFile: file})
	require.ErrorContains(t, err, "chmod 600")
	_, err = images.New(images.Config{Dir: t.TempDir(), Blobs: &imagestest.Memory{}, Transport: http.DefaultTransport, AuthFile: file + "x"})
	require.ErrorContains(t, err, "is not there")
}

// TestSecureRegistry: over TLS, with nothing of development.
func TestSecureRegistry(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, true)
	ref := reg.Push(t, "tools:1", small(t, "x"))
	s := imagestest.NewStore(t, func(c *images.Config) { c.Dev, c.Transport = false, reg.Client.Transport })
	img, _, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "x", content(t, img))
	plain := imagestest.NewRegistry(t, false)
	require.Contains(t, refused(t, s, plain.Push(t, "tools:1", small(t, "x")), images.ErrNotAllowed), "over https")
	guarded := imagestest.NewStore(t, func(c *images.Config) {
		c.Dev, c.Transport = false, netguard.New(netguard.Config{}).HTTPClient(netguard.ClientOptions{}).Transport
	})
	refused(t, guarded, ref, images.ErrNotAllowed)
}

func TestMirrorsAndPolicy(t *testing.T) {
	t.Parallel()
	mirror, origin := imagestest.NewRegistry(t, false), imagestest.NewRegistry(t, false)
	mirror.Push(t, "library/golang:1", small(t, "from the mirror"))
	origin.Push(t, "own:1", small(t, "from the origin"))
	s := imagestest.NewStore(t, func(c *images.Config) {
		c.Mirrors = map[string][]string{"docker.io": {mirror.Host}, origin.Host: {mirror.Host}}
		c.Registries = []string{"docker.io", origin.Host}
	})
	img, _, err := acquire(t, s, "golang:1")
	require.NoError(t, err)
	require.Equal(t, "from the mirror", content(t, img))
	img, said, err := acquire(t, s, origin.Host+"/own:1")
	require.NoError(t, err)
	require.Equal(t, "from the origin", content(t, img))
	require.Contains(t, said, mirror.Host+" does not have it")
	require.Contains(t, refused(t, s, "ghcr.io/owner/image:1", images.ErrNotAllowed), "does not pull from ghcr.io, only from docker.io, "+origin.Host)
	for _, bad := range []images.Config{{Registries: []string{"not a registry"}}, {Mirrors: map[string][]string{"docker.io": {""}}}, {MaxImage: -1}} {
		bad.Dir, bad.Blobs, bad.Transport = t.TempDir(), &imagestest.Memory{}, http.DefaultTransport
		_, err := images.New(bad)
		require.ErrorContains(t, err, "images: ")
	}
}

// TestPulledOnce: everybody who waits for the same image gets it from one pull, and whoever leaves does not stop it.
func TestPulledOnce(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	var pulls atomic.Int64
	hold := make(chan struct{})
	reg.Front = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
			pulls.Add(1)
			<-hold
		}
		return false
	}
	ref := reg.Push(t, "tools:1", small(t, "x"))
	s := imagestest.NewStore(t)
	leaving, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var left, ready atomic.Int64
	for i := range 16 {
		wg.Go(func() {
			ctx := context.Background()
			if i%4 == 0 {
				ctx = leaving
			}
			img, err := s.Acquire(ctx, engines.ImageRequest{Name: ref})
			switch {
			case errors.Is(err, context.Canceled):
				left.Add(1)
			case err != nil:
				t.Errorf("acquire: %v", err)
			default:
				ready.Add(1)
				img.Release()
			}
		})
	}
	require.Eventually(t, func() bool { return pulls.Load() > 0 }, time.Minute, time.Millisecond)
	leave()
	require.Eventually(t, func() bool { return left.Load() == 4 }, time.Minute, time.Millisecond)
	close(hold)
	wg.Wait()
	require.EqualValues(t, 12, ready.Load())
	require.LessOrEqual(t, pulls.Load(), int64(2+16), "two layers once; the small configuration may be asked for by each")
	layers := pulls.Load()
	img, _, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "x", content(t, img))
	require.Equal(t, layers, pulls.Load())
}

// TestCancelLeavesNothing: a pull that nobody waits for any more is stopped, and nothing of it stays but whole blobs.
func TestCancelLeavesNothing(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	started, stopped := make(chan struct{}), make(chan struct{})
	var once sync.Once
	img := small(t, "x")
	layers, err := img.Layers()
	require.NoError(t, err)
	top, err := layers[1].Digest()
	require.NoError(t, err)
	reg.Front = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, top.String()) || r.Method != http.MethodGet {
			return false
		}
		_, _ = io.WriteString(w, "some")
		_ = http.NewResponseController(w).Flush()
		once.Do(func() { close(started) })
		<-r.Context().Done()
		close(stopped)
		return true
	}
	ref := reg.Push(t, "tools:1", img)
	var dir string
	s := imagestest.NewStore(t, func(c *images.Config) { dir = c.Dir })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, engines.ImageRequest{Name: ref})
		done <- err
	}()
	<-started
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	<-stopped
	require.NoError(t, s.Close())
	require.Empty(t, below(t, filepath.Join(dir, "tmp")))
	require.Empty(t, below(t, filepath.Join(dir, "roots")))
	_, err = s.Acquire(t.Context(), engines.ImageRequest{Name: ref})
	require.Error(t, err, "a closed store pulls nothing")
}

func below(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	return names
}

// TestRoomIsMade: the image that was used longest ago goes, one in use never does, and a store full of those says so.
func TestRoomIsMade(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	big := func(c string) v1.Image {
		return small(t, c, imagestest.File("big", strings.Repeat("x", 1<<20), 0o644), imagestest.File("name", c, 0o644))
	}
	a, b, c := reg.Push(t, "a:1", big("a")), reg.Push(t, "b:1", big("b")), reg.Push(t, "c:1", big("c"))
	var cfg images.Config
	s := imagestest.NewStore(t, func(c *images.Config) { c.MaxBytes = 5 << 19; cfg = *c })
	hold := func(ref string) (*engines.Image, error) {
		return s.Acquire(t.Context(), engines.ImageRequest{Name: ref})
	}
	ia, err := hold(a)
	require.NoError(t, err)
	ib, err := hold(b)
	require.NoError(t, err)
	require.ErrorIs(t, errOf(hold(c)), images.ErrFull)
	require.Contains(t, engines.Public(errOf(hold(c))), "in use leave no room")
	require.Equal(t, "ab", content(t, ia)+content(t, ib))
	ia.Release()
	ia.Release()
	ic, err := hold(c)
	require.NoError(t, err)
	require.NoDirExists(t, ia.Root)
	require.Equal(t, "bc", content(t, ib)+content(t, ic))
	require.LessOrEqual(t, s.Used(), cfg.MaxBytes)
	require.ErrorIs(t, errOf(hold(reg.Push(t, "d:1", small(t, "d", imagestest.File("big", strings.Repeat("x", 3<<20), 0o644))))), images.ErrFull)
	ib.Release()
	ic.Release()

	require.NoError(t, s.Close())
	again, err := images.New(cfg)
	require.NoError(t, err)
	require.Equal(t, s.Used(), again.Used(), "the books are right after a restart")
	require.Positive(t, again.Collect(0))
	require.Zero(t, again.Used())
	require.Empty(t, below(t, filepath.Join(cfg.Dir, "layers")))
	_, err = images.New(cfg)
	require.ErrorIs(t, err, images.ErrLocked)
	require.ErrorContains(t, err, "is used by pid")
	require.NoError(t, again.Close())
	s2, err := images.New(cfg)
	require.NoError(t, err)
	require.NoError(t, s2.Close())

	strict := imagestest.NewStore(t, func(c *images.Config) { c.MaxImage = 1 << 20 })
	require.Contains(t, refused(t, strict, a, images.ErrTooLarge), "more than 1.0 MiB")
	few := imagestest.NewStore(t, func(c *images.Config) { c.MaxEntries = 3 })
	require.Contains(t, refused(t, few, a, images.ErrTooLarge), "more than 3 files")
}

func errOf(_ *engines.Image, err error) error { return err }

// TestCollectWhileInUse: pulls, uses and collection at once; what is held is whole all the time.
func TestCollectWhileInUse(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	var refs []string
	for i := range 5 {
		refs = append(refs, reg.Push(t, fmt.Sprintf("i%d:1", i), small(t, fmt.Sprint(i), imagestest.File("big", strings.Repeat("x", 200<<10), 0o644), imagestest.File("own", fmt.Sprint(i), 0o644))))
	}
	s := imagestest.NewStore(t, func(c *images.Config) { c.MaxBytes = 1 << 20 })
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 2))
			for range 12 {
				i := r.IntN(len(refs))
				img, err := s.Acquire(context.Background(), engines.ImageRequest{Name: refs[i]})
				if errors.Is(err, images.ErrFull) {
					continue
				}
				if err != nil {
					t.Errorf("acquire: %v", err)
					continue
				}
				if w == 0 {
					s.Collect(0)
				}
				if b, err := os.ReadFile(filepath.Join(img.Root, "content")); err != nil || string(b) != fmt.Sprint(i) {
					t.Errorf("image %d is not whole: %q %v", i, b, err)
				}
				if n := s.Used(); n > 1<<20 {
					t.Errorf("%d bytes are used", n)
				}
				img.Release()
			}
		})
	}
	wg.Wait()
	s.Collect(0)
	require.Zero(t, s.Used())
}

// stored is a blob store as the server gives one to a store of images.
type stored struct{ *blobs.Disk }

func (b stored) Has(ctx context.Context, digest string) bool {
	_, err := b.Stat(ctx, blobs.Digest(digest))
	return err == nil
}

func (b stored) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	_, _, err := b.Disk.Put(ctx, r, blobs.Want{Digest: blobs.Digest(digest), Size: size})
	return err
}

func (b stored) Open(ctx context.Context, digest string) (io.ReadCloser, error) {
	return b.Get(ctx, blobs.Digest(digest))
}

// pullUntilKilled pulls an image into dir, says so when the registry holds it up, and is killed.
func pullUntilKilled(dir, name string) {
	b, err := blobs.New(blobs.Config{Dir: filepath.Join(dir, "blobs")})
	if err == nil {
		var s *images.Store
		s, err = images.New(images.Config{
			Dir: filepath.Join(dir, "images"), Blobs: stored{b}, Dev: true,
			Transport: netguard.New(netguard.Config{Dev: true}).HTTPClient(netguard.ClientOptions{Timeout: -1}).Transport,
		})
		if err == nil {
			_, err = s.Acquire(context.Background(), engines.ImageRequest{Name: name})
		}
	}
	fmt.Println("the puller should have been killed:", err)
}

// TestT43KillDuringPull: a server that is killed while it pulls leaves whole things, which the next one goes on with.
func TestT43KillDuringPull(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	img := small(t, "x", imagestest.File("big", strings.Repeat("y", 3<<20), 0o644))
	layers, err := img.Layers()
	require.NoError(t, err)
	top, err := layers[1].Digest()
	require.NoError(t, err)
	started := make(chan struct{})
	var stuck atomic.Bool
	stuck.Store(true)
	var once sync.Once
	reg.Front = func(w http.ResponseWriter, r *http.Request) bool {
		if !stuck.Load() || !strings.HasSuffix(r.URL.Path, top.String()) || r.Method != http.MethodGet {
			return false
		}
		_, _ = io.WriteString(w, "some")
		_ = http.NewResponseController(w).Flush()
		once.Do(func() { close(started) })
		<-r.Context().Done()
		return true
	}
	ref := reg.Push(t, "tools:1", img)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envPuller+"="+dir+" "+ref)
	cmd.Stdout = os.Stderr
	require.NoError(t, cmd.Start())
	<-started
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	stuck.Store(false)
	// What a kill in the middle of unpacking leaves, beside.
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "images/tmp/layer-1/tree"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "images/roots", strings.Repeat("a", 64), "root"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "images/layers", strings.Repeat("b", 64), "tree"), 0o700))
	disk, err := blobs.New(blobs.Config{Dir: filepath.Join(dir, "blobs")})
	require.NoError(t, err)
	require.Positive(t, disk.Used(), "the configuration, or a layer, was whole")
	s := imagestest.NewStore(t, func(c *images.Config) { c.Dir, c.Blobs = filepath.Join(dir, "images"), stored{disk} })
	require.Zero(t, s.Used())
	for _, d := range []string{"tmp", "roots", "layers"} {
		require.Empty(t, below(t, filepath.Join(dir, "images", d)))
	}
	got, _, err := acquire(t, s, ref)
	require.NoError(t, err)
	require.Equal(t, "x", content(t, got))
}
