package alias_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/engines/alias"
)

// taker remembers the Spec that it was asked to open.
type taker struct{ got engines.Spec }

func (*taker) Name() string { return "sandbox" }
func (t *taker) Open(_ context.Context, s engines.Spec) (engines.Attempt, error) {
	t.got = s
	return nil, nil
}

func TestResolve(t *testing.T) {
	t.Parallel()
	arch := ""
	if runtime.GOARCH == "arm64" {
		arch = "arm64/"
	}
	nix := func(packages string) string {
		return "nixery.example.com/" + arch + packages + "bash/git/coreutils/nix"
	}
	go_ := map[string][]string{"nixpkgs": {"go", "nodejs_20"}}
	list := map[string][]string{"": {"go", "nixpkgs#Python3"}}
	for name, c := range map[string]struct {
		resolve func(string) alias.Resolve
		spec    engines.Spec
		image   string // or the error's words
		err     error
	}{
		"sandbox":                {alias.Sandbox, engines.Spec{}, "", nil},
		"sandbox with image":     {alias.Sandbox, engines.Spec{Image: "golang:1"}, "golang:1", nil},
		"sandbox with packages":  {alias.Sandbox, engines.Spec{Packages: go_}, nix("go/nodejs_20/"), nil},
		"sandbox with a list":    {alias.Sandbox, engines.Spec{Packages: list}, nix("go/python3/"), nil},
		"sandbox with both":      {alias.Sandbox, engines.Spec{Packages: go_, Image: "golang:1"}, "remove image", engines.ErrBadSpec},
		"nixery":                 {alias.Nixery, engines.Spec{Packages: go_}, nix("go/nodejs_20/"), nil},
		"nixery with nothing":    {alias.Nixery, engines.Spec{}, nix(""), nil},
		"nixery with image":      {alias.Nixery, engines.Spec{Image: "x"}, "takes none", engines.ErrBadSpec},
		"nixery elsewhere":       {alias.Nixery, engines.Spec{Packages: map[string][]string{"nixpkgs/nixpkgs-unstable": {"go"}}}, "nixpkgs-unstable", engines.ErrBadSpec},
		"nixery git":             {alias.Nixery, engines.Spec{Packages: map[string][]string{"git+https://example.com/x": {"y"}}}, "only those of nixpkgs", engines.ErrBadSpec},
		"microvm":                {alias.Microvm, engines.Spec{Packages: list}, nix("go/python3/"), nil},
		"microvm nixos":          {alias.Microvm, engines.Spec{Image: "nixos"}, nix(""), nil},
		"microvm nixos by arch":  {alias.Microvm, engines.Spec{Image: "nixos-x86_64", Packages: list}, nix("go/python3/"), nil},
		"microvm alpine":         {alias.Microvm, engines.Spec{Image: "alpine"}, "docker.io/library/alpine:latest", nil},
		"microvm alpine list":    {alias.Microvm, engines.Spec{Image: "alpine", Packages: list}, "need a NixOS image", engines.ErrBadSpec},
		"microvm unknown":        {alias.Microvm, engines.Spec{Image: "almalinux10"}, "leave the image out", engines.ErrUnknownImage},
		"microvm flake":          {alias.Microvm, engines.Spec{Packages: map[string][]string{"": {"unstable#zig"}}}, "unstable#zig", engines.ErrBadSpec},
		"microvm needs":          {alias.Microvm, engines.Spec{Needs: []string{"services", "virtualisation"}}, "services, virtualisation", engines.ErrBadSpec},
		"package leaves":         {alias.Nixery, engines.Spec{Packages: map[string][]string{"nixpkgs": {"../evil"}}}, "../evil", engines.ErrBadSpec},
		"package is a tag":       {alias.Nixery, engines.Spec{Packages: map[string][]string{"nixpkgs": {"go:1"}}}, "go:1", engines.ErrBadSpec},
		"package with a slash":   {alias.Nixery, engines.Spec{Packages: map[string][]string{"nixpkgs": {"a/b"}}}, "a/b", engines.ErrBadSpec},
		"package with an option": {alias.Nixery, engines.Spec{Packages: map[string][]string{"nixpkgs": {"-rf"}}}, "-rf", engines.ErrBadSpec},
		"too many":               {alias.Nixery, engines.Spec{Packages: map[string][]string{"nixpkgs": strings.Split(strings.Repeat("a ", 65), " ")[:65]}}, "65 dependencies", engines.ErrBadSpec},
	} {
		below := &taker{}
		e := alias.New("name", below, c.resolve("nixery.example.com"))
		require.Equal(t, "name", e.Name())
		_, err := e.Open(t.Context(), c.spec)
		if c.err != nil {
			require.ErrorIs(t, err, c.err, name)
			require.Contains(t, engines.Public(err), c.image, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.image, below.got.Image, name)
		require.Empty(t, below.got.Packages, name)
	}
}
