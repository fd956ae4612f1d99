package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExistingFilesRunUnchanged parses files in the ways people write them for the existing spindle.
func TestExistingFilesRunUnchanged(t *testing.T) {
	t.Parallel()
	s, ds := Parse("test.yaml", []byte(`# .tangled/workflows/test.yaml
engine: microvm

when:
- event: ["push", "pull_request"]
  branch: ["master"]
- event: ["manual"]

image: nixos

dependencies:
- go
- github:nixos/nixpkgs#hello

registry:
  nixpkgs: github:nixos/nixpkgs/nixos-unstable

caches:
  https://cache.example.org: "cache.example.org-1:mB9FSh9qf2dCimDSUo8Zy7bkq5CX+/rkCWyvRCYg3Fs="

services:
  postgresql:
    enable: true
    ensureUsers:
    - name: spindle-workflow
      ensureDBOwnership: true

virtualisation:
  docker: true

steps:
# the tests
- name: run tests
  environment:
    PGHOST: /run/postgresql
  command: |
    docker build -t app .

    psql -c "select 1"
- name: more
  command: go test ./...
`), Limits{})
	require.NotNil(t, s, "%v", ds)
	require.Equal(t, []string{warnOld}, codes(ds))
	require.Equal(t, []string{"go", "github:nixos/nixpkgs#hello"}, s.Dependencies.Packages)
	require.Equal(t, "https://cache.example.org", s.Microvm.Substituters[0].Key)
	require.JSONEq(t, `{"docker":true}`, string(s.Microvm.Virtualisation))
	require.JSONEq(t, `{"postgresql":{"enable":true,"ensureUsers":[{"name":"spindle-workflow","ensureDBOwnership":true}]}}`, string(s.Microvm.Services))
	require.Equal(t, "docker build -t app .\n\npsql -c \"select 1\"\n", s.Steps[0].Command)
	require.Len(t, s.When, 2)

	s, ds = Parse("mirror.yml", []byte(`when:
    - event: ["push", "manual"]
      branch: ["main", "feat/*"]

dependencies:
    ## from nixpkgs
    nixpkgs:
        - nodejs
    github:NixOS/nixpkgs/nixpkgs-unstable:
        - bun
    git+https://git.example.org/@someone/statix:
        - statix

engine: "nixery"

clone:
    depth: 100
    submodules: false

environment:
    CGO_ENABLED: 1
    SITE_PATH: "dist"

steps:
    - name: "Mirror"
      command: |
          git fetch --unshallow origin || true
          git push mirror \
            --force-with-lease
      environment:
          TOKEN: "$TOKEN"
`), Limits{})
	require.NotNil(t, s, "%v", ds)
	require.Empty(t, ds)
	require.Len(t, s.Dependencies.Registries, 3)
	require.Equal(t, []Env{{"CGO_ENABLED", "1"}, {"SITE_PATH", "dist"}}, s.Environment)
	require.Equal(t, []Env{{"TOKEN", "$TOKEN"}}, s.Steps[0].Environment)
}
