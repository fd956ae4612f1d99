package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExistingShapes has files in the shapes that people write for the network's other spindle. Each is taken, or
// refused with the code beside it.
func TestExistingShapes(t *testing.T) {
	t.Parallel()
	for src, code := range map[string]string{
		"when:\n  - event: [\"push\"]\n    branch: [\"main\"]\nengine: \"nixery\"\ndependencies:\n  nixpkgs:\n    - go\nsteps:\n  - name: \"test\"\n    command: \"go test -v ./...\"\n":                                                                                    "",
		"when:\n- event: [push, pull_request]\n  branch: master\n\nengine: nixery\n\ndependencies:\n  nixpkgs: [nodejs, pnpm]\n\nsteps:\n- name: install\n  command: pnpm install --frozen-lockfile\n- name: lint\n  command: pnpm lint\n":                                  "",
		"when: [{event: push, branch: main}, {event: manual}]\nengine: nixery\nclone: {skip: false, depth: 50, submodules: false}\nsteps: [{name: a, command: 'true'}]\n":                                                                                                   "",
		"when:\n  - event: [\"push\"]\n    branch: [\"main\"]\nengine: nixery\nclone:\n  skip: true\n  depth: 1\nsteps:\n  - command: echo\n":                                                                                                                               warnUnused,
		"engine: nixery\nwhen:\n  - event: push\n    tag: [\"v*\"]\ndependencies: {nixpkgs: [cargo, rustc, gcc]}\nenvironment:\n  CARGO_TERM_COLOR: always\n  RUST_BACKTRACE: 1\nsteps:\n  - name: release\n    command: |\n      cargo build --release\n      ls target\n": "",
		"engine: nixery\ndependencies:\n  nixpkgs: [bash]\n  nixpkgs/nixpkgs-unstable: [zig]\n  git+https://example.org/x/pkg: [thing]\nsteps:\n  - command: zig build\n":                                                                                                   "",
		"engine: microvm\nimage: nixos\ndependencies: [go, \"unstable#zig\", \"github:nixos/nixpkgs#hello\"]\nregistry: {unstable: \"github:NixOS/nixpkgs/nixos-unstable\"}\nsteps: [{command: hello}]\n":                                                                   "",
		"engine: microvm\nservices:\n  postgresql:\n    enable: true\n    ensureDatabases: [test]\nvirtualisation: {docker: {enable: true}}\nsteps: [{command: docker ps}]\n":                                                                                               "",
		"engine: microvm\nimage: alpine\ncaches: {\"https://cache.example.org\": \"k-1:A=\"}\nsteps: [{command: apk add git}]\n":                                                                                                                                            warnOld,
		"when: [{event: pull_request, branch: [main], types: [opened, synchronize]}]\nengine: nixery\nsteps: [{command: make}]\n":                                                                                                                                           "",
		"when: [{event: pull_request}]\nengine: nixery\nsteps: [{command: make}]\n":                                                                                                                                                                                         warnNever,
		"when: [{event: push, branch: main, paths: [\"src/**\", \"Cargo.*\"]}]\nengine: nixery\nsteps: [{command: make}]\n":                                                                                                                                                 "",
		"when: [{event: schedule, schedule: [{cron: \"H 2 * * *\"}]}]\nengine: nixery\nsteps: [{command: make}]\n":                                                                                                                                                          "",
		"when: [{event: schedule, schedule: [{cron: \"0 4 * * 1\", timezone: Europe/Helsinki}]}]\nengine: nixery\nsteps: [{command: make}]\n":                                                                                                                               "",
		"engine: nixery\ncache: [{key: cargo, paths: [target, ~/.cargo/registry], hash: [Cargo.lock], fallback: true, compression-level: 5, when: always}]\nsteps: [{command: make}]\n":                                                                                     "",
		"engine: nixery\naudience: sts.amazonaws.com\nsteps: [{command: aws sts get-caller-identity}]\n":                                                                                                                                                                    "",
		"engine: dummy\nruns_on: [linux, arm64]\nsteps: [{command: make}]\n":                                                                                                                                                                                                "",
		"engine: nixery\nsteps:\n  - name: Build site\n    command: |\n      hugo --minify\n    environment: {HUGO_ENV: production}\n  - name: Publish\n    command: rsync -a public/ \"$TARGET\"\n":                                                                        "",
		"engine: nixery\nsteps:\n  - name: long line\n    command: >-\n      nix build\n      --print-build-logs\n      .#default\n":                                                                                                                                        "",
		"# a comment first\n---\nengine: nixery\nsteps: [{command: make}]\n...\n":                                                                                                                                                                                           "",
		"engine: nixery\r\nsteps:\r\n  - command: make\r\n":                                                           "",
		"\ufeffengine: nixery\nsteps:\n  - command: make\n":                                                           "",
		"engine: nixery\nenvironment: {VERSION: 1.10, MODE: 0755, FLAG: yes, COUNTRY: NO}\nsteps: [{command: env}]\n": "",
		"x: &deps [go]\nengine: microvm\ndependencies: *deps\nsteps: [{command: make}]\n":                             codeKey,
		"engine: microvm\ndependencies: {nixpkgs: [go]}\nsteps: [{command: make}]\n":                                  codeType,
		"engine: nixery\ndependencies: [go]\nsteps: [{command: make}]\n":                                              codeType,
		"engine: nixery\nimage: golang\nsteps: [{command: make}]\n":                                                   codeValue,
		"engine: docker\nsteps: [{command: make}]\n":                                                                  codeEngine,
		"engine: nixery\nsteps:\n  - name: no command\n":                                                              codeRequired,
		"engine: nixery\nsteps:\n  - run: make\n":                                                                     codeKey,
		"engine: nixery\nwhen: [{event: [\"push\"], branch: [\"main\"]}]\n":                                           codeRequired,
		"engine: nixery\nsteps:\n  - command: echo ${{ secrets.TOKEN }}\n":                                            codeTemplate,
		"on: [push]\njobs:\n  a:\n    runs-on: ubuntu-latest\n":                                                       codeDialect,
		"engine: nixery\nsteps:\n  - command: cat > x <<'E'\n":                                                        "",
	} {
		s, ds := Parse("x.yml", []byte(src), Limits{})
		if code == "" {
			require.NotNil(t, s, "%s\n%v", src, ds)
			require.Empty(t, ds, src)
			continue
		}
		require.Equal(t, code, codes(ds)[0], "%s\n%v", src, ds)
	}
}
