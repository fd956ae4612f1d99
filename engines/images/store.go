package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"spindle/engines"
	"spindle/internal/clock"
	"spindle/internal/flock"
)

// Blobs keeps the compressed bytes of layers. Put refuses content that does not have the digest or the size with
// ErrDamaged, and gives ErrFull where there is no room. Open checks what it gives while it is read.
type Blobs interface {
	Has(ctx context.Context, digest string) bool
	Put(ctx context.Context, digest string, size int64, r io.Reader) error
	Open(ctx context.Context, digest string) (io.ReadCloser, error)
}

// Config sets a Store up.
type Config struct {
	// Dir is the store's own folder, created with mode 0700. Required, absolute. One process at a time uses it.
	Dir string
	// Blobs has the bytes that are pulled. Required.
	Blobs Blobs
	// Transport is the way to registries: the guard's. Required.
	Transport http.RoundTripper
	// Dev allows plain http to registries on the loopback address.
	Dev bool
	// AuthFile is a file in the form of docker's config.json that only its owner can read. Empty means no credentials.
	AuthFile string
	// Mirrors lists, for a registry, hosts that are asked before it. "docker.io" is a registry's name too.
	Mirrors map[string][]string
	// Registries are the only ones that may be pulled from; empty means all.
	Registries []string
	// MaxImage bounds one image, compressed and unpacked, in bytes. Zero means 8 GiB.
	MaxImage int64
	// MaxBytes bounds all images, unpacked, in bytes. Zero means 40 GiB.
	MaxBytes int64
	// MaxEntries bounds the files of one image. Zero means one million.
	MaxEntries int64
	// Clock is for waits and last uses. nil means the machine's clock.
	Clock clock.Clock
	// Log gets the operator's view. nil discards it.
	Log *slog.Logger
}

// How much is done at a time in the whole store.
const (
	parallelPulls   = 4
	parallelUnpacks = 2
)

// Store holds images. Make it with New, and close it. It is safe for concurrent use.
type Store struct {
	cfg       Config
	transport http.RoundTripper
	creds     credentials
	root      bool // the server may give files to other accounts
	lock      *flock.Lock
	flights   *flights
	pulls     chan struct{}
	unpacks   chan struct{}

	mu     sync.Mutex
	roots  map[string]*root      // by digest of the manifest
	layers map[string]*layerTree // by diff id
	tops   map[string]string     // digest behind a tag, an index or a manifest, to that of the manifest
	names  map[string]string     // reference, to the digest of the manifest that it was last
	used   int64                 // bytes on the disk, those being written included
}

// New opens the store in cfg.Dir and removes what was not finished when an earlier one ended.
func New(cfg Config) (*Store, error) {
	if cfg.MaxImage == 0 {
		cfg.MaxImage = 8 << 30
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 40 << 30
	}
	if cfg.MaxEntries == 0 {
		cfg.MaxEntries = 1_000_000
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case !filepath.IsAbs(cfg.Dir):
		return nil, fmt.Errorf("images: Dir %q is not an absolute path", cfg.Dir)
	case cfg.Blobs == nil || cfg.Transport == nil:
		return nil, errors.New("images: Blobs and Transport are required")
	case cfg.MaxImage < 0 || cfg.MaxBytes < 0 || cfg.MaxEntries < 0:
		return nil, errors.New("images: a bound is negative")
	}
	mirrors, err := canonicalMirrors(cfg.Mirrors)
	if err != nil {
		return nil, err
	}
	cfg.Mirrors = mirrors
	registries := make([]string, len(cfg.Registries))
	for i, r := range cfg.Registries {
		if registries[i], err = registryHost(r); err != nil {
			return nil, err
		}
	}
	cfg.Registries = registries
	s := &Store{
		cfg: cfg, transport: bounded{next: cfg.Transport, dev: cfg.Dev}, creds: credentials{path: cfg.AuthFile}, root: os.Geteuid() == 0,
		flights: newFlights(), pulls: make(chan struct{}, parallelPulls), unpacks: make(chan struct{}, parallelUnpacks),
		roots: map[string]*root{}, layers: map[string]*layerTree{}, tops: map[string]string{}, names: map[string]string{},
	}
	if err := s.creds.check(); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

func canonicalMirrors(in map[string][]string) (map[string][]string, error) {
	out := map[string][]string{}
	for reg, hosts := range in {
		at, err := registryHost(reg)
		if err != nil {
			return nil, err
		}
		for _, h := range hosts {
			m, err := registryHost(h)
			if err != nil {
				return nil, err
			}
			out[at] = append(out[at], m)
		}
	}
	return out, nil
}

// registryHost reads the name of a registry out of a setting.
func registryHost(text string) (string, error) {
	host := canonicalRegistry(text)
	r, err := name.NewRegistry(host, name.StrictValidation)
	if err != nil || host == "" {
		return "", fmt.Errorf("images: %q is not the name of a registry, such as ghcr.io or registry.example.com:5000", clip(text, 100))
	}
	return r.RegistryStr(), nil
}

// open takes the folder and reads what is in it.
func (s *Store) open() error {
	for _, d := range []string{"layers", "roots", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.cfg.Dir, d), 0o700); err != nil {
			return fmt.Errorf("images: create the folder: %w", err)
		}
	}
	lock, err := flock.Take(filepath.Join(s.cfg.Dir, "lock"), s.cfg.Clock.Now())
	var held *flock.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("%w: %s is used by %s; stop that one first, or give this one its own folder", ErrLocked, s.cfg.Dir, held.Holder)
	}
	if err != nil {
		return fmt.Errorf("images: take the folder: %w", err)
	}
	s.lock = lock
	if err := s.load(); err != nil {
		return errors.Join(fmt.Errorf("images: read what is stored: %w", err), lock.Release())
	}
	return nil
}

// Close stops what is being pulled, waits for it, and gives the folder free, once. Roots that are held stay on the disk.
func (s *Store) Close() error {
	s.flights.close()
	if err := s.lock.Release(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("images: close: %w", err)
	}
	return nil
}

// Used is how many bytes of images are on the disk.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// request is an engines.ImageRequest that was read.
type request struct {
	text      string // as it was asked for
	ref       name.Reference
	untrusted bool
	progress  func(string)
}

// say tells whoever waits, if anybody wants to hear it.
func (r request) say(format string, args ...any) {
	if r.progress != nil {
		r.progress(fmt.Sprintf(format, args...))
	}
}

// Acquire makes an image ready and holds it. What is here already and is named by a digest needs no network; a tag is
// asked again each time, so that a push before a push counts. The error is an *engines.Error.
func (s *Store) Acquire(ctx context.Context, req engines.ImageRequest) (*engines.Image, error) {
	img, err := s.acquire(ctx, req)
	if err != nil {
		s.cfg.Log.Warn("an image could not be made ready", "image", clip(req.Name, 200), "err", err)
		return nil, local(req.Name, err)
	}
	return img, nil
}

func (s *Store) acquire(ctx context.Context, req engines.ImageRequest) (*engines.Image, error) {
	ref, err := s.parse(req.Name)
	if err != nil {
		return nil, err
	}
	r := request{text: req.Name, ref: ref, untrusted: req.Untrusted, progress: req.Progress}
	began := s.cfg.Clock.Now()
	if d, ok := ref.(name.Digest); ok {
		if img := s.hold(d.DigestStr(), r); img != nil {
			r.say("image %s is here already", req.Name)
			return img, nil
		}
	}
	for range 3 { // an image that is ready can be evicted before it is held, in theory
		f, err := s.find(ctx, r, func(top string) (string, bool) { return s.have(top) })
		if err != nil {
			if img := s.lastKnown(r, err); img != nil {
				return img, nil
			}
			return nil, err
		}
		if img := s.holdFound(f, r); img != nil {
			r.say("image %s is here already (%s)", req.Name, f.tops[0])
			return img, nil
		}
		if f.known {
			continue // it was here a moment ago
		}
		err = s.flights.do(ctx, "image "+f.digest, r.progress, func(ctx context.Context, say func(string)) error {
			r := r
			r.progress = say
			return s.build(ctx, r, f)
		})
		if err != nil {
			return nil, err
		}
		if img := s.holdFound(f, r); img != nil {
			r.say("image %s is ready after %s", req.Name, s.cfg.Clock.Now().Sub(began).Round(time.Millisecond))
			return img, nil
		}
	}
	return nil, fmt.Errorf("%w: %s was removed as soon as it was made", ErrFull, ref)
}

// lastKnown serves a tag from the disk when its registry has a fault: an old answer is better than none, and the log
// says which one it is.
func (s *Store) lastKnown(r request, err error) *engines.Image {
	if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrRateLimited) {
		return nil
	}
	s.mu.Lock()
	digest, ok := s.names[r.ref.Name()]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	img := s.hold(digest, r)
	if img != nil {
		r.say("%s; going on with the image as it was here last (%s)", local(r.text, err).(*engines.Error).Public, digest) //nolint:errorlint,forcetypeassert // local gives one
	}
	return img
}

// authFor is what to show to the registry of at.
func (s *Store) authFor(at name.Reference, untrusted bool) (authn.Authenticator, bool, error) {
	if untrusted {
		return authn.Anonymous, false, nil
	}
	auth, private, err := s.creds.of(at.Context().RegistryStr())
	if err != nil {
		return nil, false, engines.Fault("the spindle's credentials for registries cannot be read (not your code)", errors.Join(engines.ErrUnavailable, err))
	}
	return auth, private, nil
}
