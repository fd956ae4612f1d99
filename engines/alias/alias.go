// Package alias gives an engine the further names that workflow files use, and makes images out of what they ask for.
//
// A file may name packages instead of an image; a nixery server makes an image of every set of packages, and its
// name is the set. The names follow the existing spindle's to the letter, so the same images are shared. An Engine of this
// package owns no state: it changes a Spec and hands it on.
//
// It refuses, by name, what no image can give: packages of other registries than nixpkgs, machine images that are
// not known, and whatever a Spec needs that takes a virtual machine.
package alias

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"spindle/engines"
)

// Engine is another engine under a name of its own. It implements engines.Engine.
type Engine struct {
	name    string
	on      engines.Engine
	resolve Resolve
}

// Resolve completes a Spec for the engine below. Its errors are *engines.Error.
type Resolve func(s *engines.Spec) error

// New makes name stand for on, with what resolve makes of a Spec.
func New(name string, on engines.Engine, resolve Resolve) *Engine {
	return &Engine{name: name, on: on, resolve: resolve}
}

// Name implements engines.Engine.
func (e *Engine) Name() string { return e.name }

// Open implements engines.Engine.
func (e *Engine) Open(ctx context.Context, s engines.Spec) (engines.Attempt, error) {
	if err := e.resolve(&s); err != nil {
		return nil, err
	}
	return e.on.Open(ctx, s)
}

// The three names of a sandbox. All take the nixery server that packages come from, such as "nixery.tangled.sh".

// Sandbox takes an image, or packages, or neither.
func Sandbox(nixery string) Resolve {
	return func(s *engines.Spec) error {
		if len(s.Packages) == 0 {
			return nil
		}
		if s.Image != "" {
			return refuse("dependencies make an image of their own; remove image: %q, or the dependencies", s.Image)
		}
		return packages(nixery, s)
	}
}

// Nixery always makes an image of packages, of none as well.
func Nixery(nixery string) Resolve {
	return func(s *engines.Spec) error {
		if s.Image != "" {
			return refuse("engine nixery makes its image from dependencies and takes none, this is %q", s.Image)
		}
		return packages(nixery, s)
	}
}

// Microvm runs what was written for virtual machines: their NixOS image is one of packages here.
func Microvm(nixery string) Resolve {
	return func(s *engines.Spec) error {
		if len(s.Needs) > 0 {
			return refuse("this spindle runs engine microvm in a sandbox, which does not have: %s; it needs a virtual machine", strings.Join(s.Needs, ", "))
		}
		switch name, _, _ := strings.Cut(s.Image, "-"); name {
		case "", "nixos":
			return packages(nixery, s)
		case "alpine":
			if len(s.Packages) > 0 {
				return refuse("dependencies need a NixOS image, this is %q; use image: nixos, or install them in a step", s.Image)
			}
			s.Image = "docker.io/library/alpine:latest"
			return nil
		}
		return engines.Fault(fmt.Sprintf("image %q is not here for engine microvm (has: nixos, alpine); use one of these, or leave the image out; engine sandbox takes images of registries", clip(s.Image)),
			fmt.Errorf("%w: %q", engines.ErrUnknownImage, s.Image))
	}
}

// always are in every image of packages, as in the existing spindle.
func always() []string { return []string{"bash", "git", "coreutils", "nix"} }

// maxPackages bounds a list; each is a part of one path.
const maxPackages = 64

// attribute is what a package may be called: what a path of the registry protocol takes, and no more.
var attribute = regexp.MustCompile(`^[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*$`)

// packages makes the Spec's packages its image: <nixery>/[arm64/]<packages>/bash/git/coreutils/nix.
func packages(nixery string, s *engines.Spec) error {
	var names []string
	for _, registry := range slices.Sorted(maps.Keys(s.Packages)) {
		if registry != "" && registry != "nixpkgs" {
			return refuse("dependencies of %q are not offered by this spindle, only those of nixpkgs", registry)
		}
		for _, p := range s.Packages[registry] {
			p = strings.TrimPrefix(p, "nixpkgs#")
			if !attribute.MatchString(p) || len(p) > 128 {
				return refuse("dependency %q is not the name of a package in nixpkgs; other registries are not offered by this spindle", p)
			}
			// Names of images are in lower case. Nixery looks packages up without regard to it.
			names = append(names, strings.ToLower(p))
		}
	}
	if len(names) > maxPackages {
		return refuse("%d dependencies are more than %d", len(names), maxPackages)
	}
	parts := append(names, always()...)
	if runtime.GOARCH == "arm64" {
		parts = append([]string{"arm64"}, parts...)
	}
	s.Image, s.Packages = path.Join(append([]string{nixery}, parts...)...), nil
	return nil
}

func refuse(format string, args ...any) error {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = clip(text)
		}
	}
	public := fmt.Sprintf(format, args...)
	return engines.Fault(public, fmt.Errorf("%w: %s", engines.ErrBadSpec, public))
}

// clip bounds what is quoted from a workflow file.
func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
