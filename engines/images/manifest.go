package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// found is an image as a registry describes it, checked but for its layers.
type found struct {
	digest  string          // of the manifest
	tops    []string        // digests of what led to it: an index, if any
	repo    name.Repository // where the layers are
	puller  *remote.Puller
	private bool // it was asked for with credentials
	known   bool // it is here, or was a moment ago; only digest and tops are filled in
	config  v1.ConfigFile
	layers  []layer
}

// layer is one layer of an image: what is to be pulled, and what it is when it is unpacked.
type layer struct {
	blob string // digest of the compressed bytes
	size int64  // of the compressed bytes
	diff string // digest of the uncompressed archive
}

// Bounds on the description of an image.
const (
	maxLayers = 128
	maxConfig = 4 << 20
)

// find asks the places where ref can be had, in their order, what it is. known is called with the digest behind
// a tag; when it says true, only digest and tops are filled in.
func (s *Store) find(ctx context.Context, r request, known func(top string) (digest string, ok bool)) (*found, error) {
	places, err := s.places(r.ref)
	if err != nil {
		return nil, err
	}
	for i, at := range places {
		f, err := s.findAt(ctx, r, at, known)
		if err == nil || i == len(places)-1 || ctx.Err() != nil {
			return f, err
		}
		r.say("%s does not have it: %s", shown(at.Context().RegistryStr()), clip(local(r.text, err).Error(), 200))
	}
	return nil, fmt.Errorf("images: nowhere to ask for %s", r.ref) // there is always one place
}

func (s *Store) findAt(ctx context.Context, r request, at name.Reference, known func(string) (string, bool)) (*found, error) {
	f := &found{repo: at.Context()}
	auth, private, err := s.authFor(at, r.untrusted)
	if err != nil {
		return nil, err
	}
	f.private = private
	f.puller, err = remote.NewPuller(remote.WithTransport(s.transport), remote.WithAuth(auth), remote.WithRetryBackoff(remote.Backoff{Steps: 1}),
		remote.WithRetryStatusCodes(), remote.WithUserAgent("spindle"))
	if err != nil {
		return nil, fmt.Errorf("images: prepare to ask %s: %w", at, err)
	}
	var top *remote.Descriptor
	err = s.again(ctx, r, at, func(ctx context.Context) error {
		if head, herr := f.puller.Head(ctx, at); herr == nil {
			if d, ok := known(head.Digest.String()); ok {
				f.digest, f.tops, f.known = d, []string{head.Digest.String()}, true
				return nil
			}
		}
		// Some registries do not answer a HEAD, and none explains a refusal in one.
		top, err = f.puller.Get(ctx, at)
		return err
	})
	if err != nil || top == nil {
		return f, err
	}
	f.tops = []string{top.Digest.String()}
	if top.MediaType.IsIndex() {
		if top, err = s.choose(ctx, r, at, f, top.Manifest); err != nil {
			return nil, err
		}
	}
	f.digest = top.Digest.String()
	return f, s.describe(ctx, r, at, f, top.Manifest)
}

// choose picks this machine's image out of an index.
func (s *Store) choose(ctx context.Context, r request, at name.Reference, f *found, raw []byte) (*remote.Descriptor, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, damaged("its index cannot be read", err)
	}
	var have []string
	for _, m := range index.Manifests {
		if m.Platform != nil && m.Platform.OS != "unknown" { // attestations have no platform
			have = append(have, m.Platform.String())
		}
		if !m.MediaType.IsImage() || !suits(m.Platform) || m.Digest.Algorithm != "sha256" {
			continue
		}
		var child *remote.Descriptor
		err := s.again(ctx, r, at, func(ctx context.Context) error {
			child, err = f.puller.Get(ctx, f.repo.Digest(m.Digest.String()))
			return err
		})
		return child, err
	}
	return nil, wrongPlatform(r.text, have)
}

// describe reads manifest and configuration, and refuses what cannot be an image that runs here.
func (s *Store) describe(ctx context.Context, r request, at name.Reference, f *found, raw []byte) error {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return damaged("its manifest cannot be read", err)
	}
	if m.Config.Size > maxConfig || len(m.Layers) > maxLayers || m.SchemaVersion != 2 {
		return fmt.Errorf("%w: it has %d layers and a description of %d bytes", ErrTooLarge, len(m.Layers), m.Config.Size)
	}
	if !m.Config.MediaType.IsConfig() {
		return damaged(fmt.Sprintf("it is not an image to run but %s", clip(string(m.Config.MediaType), 80)), nil)
	}
	config, err := s.fetchConfig(ctx, r, at, f, m.Config)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(config, &f.config); err != nil {
		return damaged("its configuration cannot be read", err)
	}
	c := f.config
	if c.OS != "" && !suits(&v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}) {
		return wrongPlatform(r.text, []string{c.OS + "/" + c.Architecture})
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) {
		return damaged(fmt.Sprintf("it has %d layers and names the content of %d", len(m.Layers), len(c.RootFS.DiffIDs)), nil)
	}
	total := int64(0)
	for i, l := range m.Layers {
		if !unpackable(l.MediaType) || len(l.URLs) > 0 {
			return damaged(fmt.Sprintf("layer %d is of a kind that cannot be unpacked: %s", i+1, clip(string(l.MediaType), 80)), nil)
		}
		diff := c.RootFS.DiffIDs[i]
		if l.Digest.Algorithm != "sha256" || diff.Algorithm != "sha256" || l.Size < 0 {
			return damaged("a layer has no sha256 digest", nil)
		}
		total += l.Size
		if l.Size > s.cfg.MaxImage || total > s.cfg.MaxImage {
			return fmt.Errorf("%w: it has %s or more to pull, and %s are allowed", ErrTooLarge, size(total), size(s.cfg.MaxImage))
		}
		f.layers = append(f.layers, layer{blob: l.Digest.String(), size: l.Size, diff: diff.String()})
	}
	return nil
}

// fetchConfig gives the bytes of the configuration, which are kept like a layer's.
func (s *Store) fetchConfig(ctx context.Context, r request, at name.Reference, f *found, d v1.Descriptor) ([]byte, error) {
	if int64(len(d.Data)) == d.Size && d.Size > 0 {
		if h, _, err := v1.SHA256(bytes.NewReader(d.Data)); err == nil && h == d.Digest {
			return d.Data, nil
		}
	}
	if err := s.fetch(ctx, r, at, f, layer{blob: d.Digest.String(), size: d.Size}, func(int64) {}); err != nil {
		return nil, err
	}
	in, err := s.cfg.Blobs.Open(ctx, d.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("images: open a configuration: %w", err)
	}
	defer in.Close()
	return readAll(in, maxConfig)
}

// unpackable are the media types of archives that are plain or compressed with gzip or zstd. Which one it is, is
// told by the bytes.
func unpackable(t types.MediaType) bool {
	return slices.Contains([]types.MediaType{types.DockerLayer, types.DockerUncompressedLayer, types.OCILayer, types.OCIUncompressedLayer, types.OCILayerZStd}, t)
}

func damaged(why string, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, why, err)
	}
	return fmt.Errorf("%w: %s", ErrDamaged, why)
}

// tries is how often a registry is asked, and firstWait how long after its first failure; it grows by three. A
// registry's own wish is heeded up to longestWait, beyond which nobody waits.
const (
	tries       = 4
	firstWait   = 500 * time.Millisecond
	longestWait = 30 * time.Second
)

// again asks until it works, or failing has no end.
func (s *Store) again(ctx context.Context, r request, at name.Reference, ask func(context.Context) error) error {
	registry := shown(at.Context().RegistryStr())
	wait := firstWait
	for try := 1; ; try++ {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("images: ask %s: %w", registry, ctx.Err())
		}
		if ours(err) {
			return err
		}
		a := judge(r.text, registry, err)
		pause := max(wait, a.wait)
		if !a.again || try == tries || pause > longestWait {
			return fault(a.public, a.kind, err)
		}
		r.say("%s; trying again in %s", a.public, pause)
		if err := s.cfg.Clock.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("images: wait for %s: %w", registry, err)
		}
		wait *= 3
	}
}
