package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// maxAuthFile bounds the file of credentials.
const maxAuthFile = 1 << 20

// credentials reads a file in the form of docker's config.json: {"auths": {"ghcr.io": {"auth": "…"}}}. It is read
// for each pull, so that a token which is renewed counts at once. Helpers (credHelpers, credsStore) are programs, and
// are not started.
type credentials struct{ path string }

// authFile is the part of the file that is read.
type authFile struct {
	Auths map[string]authn.AuthConfig `json:"auths"`
}

// of is what to show to registry; anonymous where there is nothing for it.
func (c credentials) of(registry string) (auth authn.Authenticator, private bool, err error) {
	if c.path == "" {
		return authn.Anonymous, false, nil
	}
	all, err := c.read()
	if err != nil {
		return nil, false, err
	}
	for key, conf := range all {
		if canonicalRegistry(key) == registry && conf != (authn.AuthConfig{}) {
			return authn.FromConfig(conf), true, nil
		}
	}
	return authn.Anonymous, false, nil
}

// read never quotes the file's content in an error.
func (c credentials) read() (map[string]authn.AuthConfig, error) {
	st, err := os.Stat(c.path)
	if err != nil {
		return nil, fmt.Errorf("images: read the registries' credentials: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("images: %s can be read by others; run `chmod 600 %s`", c.path, c.path)
	}
	if !st.Mode().IsRegular() || st.Size() > maxAuthFile {
		return nil, fmt.Errorf("images: %s is not a file of at most %d bytes", c.path, maxAuthFile)
	}
	b, err := os.ReadFile(c.path)
	if err != nil {
		return nil, fmt.Errorf("images: read the registries' credentials: %w", err)
	}
	var f authFile
	if json.Unmarshal(b, &f) != nil {
		return nil, fmt.Errorf("images: %s is not JSON in the form of docker's config.json, such as {\"auths\":{\"ghcr.io\":{\"auth\":\"BASE64\"}}}", c.path)
	}
	return f.Auths, nil
}

// check finds out at the start whether the file can be used.
func (c credentials) check() error {
	if c.path == "" {
		return nil
	}
	_, err := c.read()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("images: the file of credentials %s is not there", c.path)
	}
	return err
}

// canonicalRegistry is a registry's name as references have it: keys of the file may be addresses, and Docker's own
// registry goes by several names.
func canonicalRegistry(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(key), "https://"), "http://")
	key, _, _ = strings.Cut(key, "/")
	switch key {
	case "docker.io", "registry-1.docker.io", "registry.hub.docker.com":
		return dockerHub
	}
	return key
}
