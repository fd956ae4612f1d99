package images

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// dockerHub is the registry of references that name none, under the name that its protocol has.
const dockerHub = name.DefaultRegistry

// maxReference bounds a reference: a host, a repository of 255 bytes and a digest (the distribution specification).
const maxReference = 512

// digestLike is what may follow an @.
var digestLike = regexp.MustCompile(`^[a-z0-9+._-]+:[0-9a-fA-F]+$`)

// parse reads a reference, and says what is wrong with one that is none. What looks like an address may hold a
// password, and is not repeated.
func (s *Store) parse(text string) (name.Reference, error) {
	_, after, at := strings.Cut(text, "@")
	if strings.Contains(text, "://") || at && !digestLike.MatchString(after) {
		return nil, fault("an image is named without a scheme or credentials, such as docker.io/library/golang:1.26", ErrReference, nil)
	}
	if len(text) > maxReference {
		return nil, fault(fmt.Sprintf("an image's name has at most %d bytes", maxReference), ErrReference, nil)
	}
	ref, err := name.ParseReference(text)
	if err != nil || strings.HasPrefix(text, "-") {
		return nil, fault(fmt.Sprintf("%q is not the name of an image; names are like golang:1.26 or ghcr.io/owner/image@sha256:…, in lower case", clip(text, 100)), ErrReference, err)
	}
	if d, ok := ref.(name.Digest); ok && !strings.HasPrefix(d.DigestStr(), "sha256:") {
		return nil, fault("images are pinned with sha256 digests here", ErrReference, nil)
	}
	if reg := ref.Context().RegistryStr(); len(s.cfg.Registries) > 0 && !slices.Contains(s.cfg.Registries, reg) {
		return nil, fault(fmt.Sprintf("image %q: this spindle does not pull from %s, only from %s", clip(text, 200), shown(reg), strings.Join(shownAll(s.cfg.Registries), ", ")), ErrNotAllowed, nil)
	}
	return ref, nil
}

// places are where ref can be had: the mirrors of its registry in their order, then the registry itself.
func (s *Store) places(ref name.Reference) ([]name.Reference, error) {
	repo := ref.Context()
	var out []name.Reference
	for _, host := range append(slices.Clone(s.cfg.Mirrors[repo.RegistryStr()]), repo.RegistryStr()) {
		at := host + "/" + repo.RepositoryStr()
		var r name.Reference
		var err error
		if d, ok := ref.(name.Digest); ok {
			r, err = name.NewDigest(at + "@" + d.DigestStr())
		} else {
			r, err = name.NewTag(at + ":" + ref.Identifier())
		}
		if err != nil {
			return nil, fmt.Errorf("images: name %s at %s: %w", repo.RepositoryStr(), host, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// shown is a registry as people know it.
func shown(registry string) string {
	if registry == dockerHub {
		return "docker.io"
	}
	return registry
}

func shownAll(registries []string) []string {
	out := make([]string, len(registries))
	for i, r := range registries {
		out[i] = shown(r)
	}
	return out
}

// platform is what this machine runs.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// suits says that an image for p runs here. 64-bit ARM has one variant that counts.
func suits(p *v1.Platform) bool {
	if p == nil {
		return false
	}
	want := platform()
	return p.OS == want.OS && p.Architecture == want.Architecture && (p.Variant == "" || p.Variant == "v8" || want.Architecture == "amd64" && p.Variant == "v1")
}

// wrongPlatform is the error for an image that is only for others.
func wrongPlatform(text string, have []string) error {
	slices.Sort(have)
	have = slices.Compact(have)
	if len(have) > 12 {
		have = append(have[:12], "…")
	}
	p := platform()
	return fault(fmt.Sprintf("image %q is not for this machine (%s on %s); it is for %s", clip(text, 200), p.OS, p.Architecture, clip(strings.Join(have, ", "), 300)), ErrPlatform, nil)
}
