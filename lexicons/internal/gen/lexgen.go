package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is one generated package, in the shape of lexgen's build file.
type pkg struct {
	Name   string `json:"package"`
	Prefix string `json:"prefix"`
	Outdir string `json:"outdir"`
	Import string `json:"import"`
}

// packages are the generations of the network that are spoken, one package each.
var packages = []pkg{
	{Name: "orgtangled", Prefix: "org.tangled", Import: "spindle/lexicons/orgtangled"},
	{Name: "shtangled", Prefix: "sh.tangled", Import: "spindle/lexicons/shtangled"},
}

// lexgen writes the types of every package into a directory of its name below tmp.
func lexgen(ctx context.Context, dir, tmp string) error {
	build := make([]pkg, len(packages))
	for i, p := range packages {
		p.Outdir = filepath.Join(tmp, p.Name)
		build[i] = p
	}
	b, err := json.Marshal(build)
	if err != nil {
		return fmt.Errorf("encode the build file: %w", err)
	}
	file := filepath.Join(tmp, "lexgen.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return fmt.Errorf("write the build file: %w", err)
	}
	args := []string{"tool", "lexgen", "--build-file", file}
	for _, p := range packages {
		args = append(args, treeOf(dir, p))
	}
	return goCommand(ctx, args...)
}

// treeOf is the directory below dir that holds the lexicons of p.
func treeOf(dir string, p pkg) string {
	return filepath.Join(dir, filepath.FromSlash(strings.ReplaceAll(p.Prefix, ".", "/")))
}

// goCommand runs the go command offline and without cgo, and gives its output only with an error.
func goCommand(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// readRoots names, for every package, the Go types that travel as DAG-CBOR: records, objects that are the
// main definition of their lexicon, and the messages of subscriptions. What these contain is found later.
func readRoots(dir string) (map[string][]string, error) {
	roots := make(map[string][]string)
	for _, p := range packages {
		err := filepath.WalkDir(treeOf(dir, p), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
				return err
			}
			names, err := rootsOf(path, p)
			roots[p.Name] = append(roots[p.Name], names...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the lexicons of %s: %w", p.Prefix, err)
		}
	}
	return roots, nil
}

// rootsOf names the Go types of one lexicon file that travel as DAG-CBOR.
func rootsOf(path string, p pkg) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		ID   string `json:"id"`
		Defs map[string]struct {
			Type    string `json:"type"`
			Message struct {
				Schema struct {
					Refs []string `json:"refs"`
				} `json:"schema"`
			} `json:"message"`
		} `json:"defs"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var names []string
	for name, def := range file.Defs {
		switch {
		case def.Type == "record" || def.Type == "object" && name == "main":
			names = append(names, goName(file.ID, name, p.Prefix))
		case def.Type == "subscription":
			for _, ref := range def.Message.Schema.Refs {
				frag, ok := strings.CutPrefix(ref, "#")
				if !ok {
					return nil, fmt.Errorf("%s: %w: %s", path, errForeignMessage, ref)
				}
				names = append(names, goName(file.ID, frag, p.Prefix))
			}
		}
	}
	return names, nil
}

// errForeignMessage refuses a subscription whose messages are defined in another lexicon.
var errForeignMessage = errors.New("a message of a subscription must be defined beside it")

// goName is the name that lexgen gives to a definition.
func goName(id, def, prefix string) string {
	var b strings.Builder
	for _, part := range strings.Split(strings.TrimPrefix(id, prefix+"."), ".") {
		b.WriteString(upper(part))
	}
	if def != "main" {
		b.WriteString("_" + upper(def))
	}
	return b.String()
}

// upper makes the first letter of an ASCII name a capital.
func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
