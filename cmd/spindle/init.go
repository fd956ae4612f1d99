package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"spindle/desk"
	"spindle/desk/adopt"
	"spindle/workflow"
)

func initCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "write a first workflow for this project, or take over those of another system",
		ArgsUsage: "[FILE...]",
		Description: "spindle init                                   looks at the project and writes a small workflow\n" +
			"spindle init --template go                     the same for a kind of project that you name\n" +
			"spindle init --from github                     takes over .github/workflows/*.yml, and says what did not map",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "directory", Aliases: []string{"C"}, Value: ".", Usage: "work in this folder's repository"},
			&cli.StringFlag{Name: "template", Usage: "go, node, rust, python, nix or shell"},
			&cli.StringFlag{Name: "from", Usage: "github or woodpecker: take over its files, or those that are named"},
			&cli.BoolFlag{Name: "force", Usage: "write over workflow files that are there"},
			&cli.BoolFlag{Name: "print", Usage: "print the files and write none"},
		},
		Action: func(ctx context.Context, c *cli.Command) error { return initProject(ctx, c, stdout) },
	}
}

func initProject(ctx context.Context, c *cli.Command, stdout io.Writer) error {
	repo, err := desk.Find(ctx, c.String("directory"))
	if err != nil {
		return fail(exitEnv, err)
	}
	var files []adopt.File
	var b strings.Builder
	switch from := c.String("from"); from {
	case "":
		if c.Args().Present() {
			return fail(exitUsage, errors.New("files are for --from github or --from woodpecker"))
		}
		f, said, err := template(repo.Top, c.String("template"))
		if err != nil {
			return err
		}
		files = []adopt.File{f}
		b.WriteString(said)
	case "github", "woodpecker":
		if files, err = takeOver(repo.Top, from, c.Args().Slice(), &b); err != nil {
			return err
		}
	default:
		return fail(exitUsage, fmt.Errorf("--from must be github or woodpecker, this is %q", clipped(from)))
	}
	bad := checkMade(files, &b)
	if c.Bool("print") {
		for _, f := range files {
			fmt.Fprintf(&b, "# %s%s\n%s", workflow.Dir, f.Name, f.Data)
		}
	} else {
		if err := writeFiles(repo.Top, files, c.Bool("force"), &b); err != nil {
			return err
		}
		b.WriteString("next:\n  spindle lint     checks it\n  spindle run      runs it here, with what is not committed\n  git add " + workflow.Dir + "   and push: the server runs it then\n")
	}
	if _, err := io.WriteString(stdout, b.String()); err != nil {
		return fail(exitEnv, fmt.Errorf("write the answer: %w", err))
	}
	if bad > 0 {
		return fail(exitInvalid, fmt.Errorf("%s needs your hand before it can run", count(bad, "file")))
	}
	return nil
}

// template is a first workflow for the project at top.
func template(top, kind string) (f adopt.File, said string, err error) {
	p := adopt.Project(kind)
	list, err := os.ReadDir(top)
	if err != nil {
		return f, "", fail(exitEnv, err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	switch {
	case kind == "":
		because := ""
		if p, because = adopt.Detect(names); because == "" {
			said = "a shell project, since nothing says that it is another; --template names one\n"
		} else {
			said = fmt.Sprintf("a %s project: there is %s\n", p, because)
		}
	case !slices.Contains(adopt.Projects(), p):
		return f, "", fail(exitUsage, fmt.Errorf("--template must be go, node, rust, python, nix or shell, this is %q", clipped(kind)))
	}
	return adopt.Template(p, projectFacts(top, names)), said, nil
}

// projectFacts looks into the files that a template asks for.
func projectFacts(top string, names []string) adopt.Facts {
	var out adopt.Facts
	var pack struct {
		Scripts map[string]string `json:"scripts"`
	}
	if b, err := readBounded(filepath.Join(top, "package.json")); err == nil && json.Unmarshal(b, &pack) == nil {
		test := pack.Scripts["test"]
		out.NodeTest = test != "" && !strings.Contains(test, "no test specified")
		out.NodeBuild = pack.Scripts["build"] != ""
	}
	for _, n := range []string{"Makefile", "makefile", "GNUmakefile"} {
		if b, err := readBounded(filepath.Join(top, n)); err == nil {
			out.Makefile = out.Makefile || strings.HasPrefix(string(b), "test:") || strings.Contains(string(b), "\ntest:")
		}
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".sh") && strings.Contains(strings.ToLower(n), "test") {
			out.Scripts = append(out.Scripts, n)
		}
	}
	return out
}

// takeOver reads the files of another system.
func takeOver(top, from string, named []string, b *strings.Builder) ([]adopt.File, error) {
	if len(named) == 0 {
		patterns := []string{".github/workflows/*.yml", ".github/workflows/*.yaml"}
		if from == "woodpecker" {
			patterns = []string{".woodpecker.yml", ".woodpecker.yaml", ".woodpecker/*.yml", ".woodpecker/*.yaml"}
		}
		for _, p := range patterns {
			found, err := filepath.Glob(filepath.Join(top, p))
			if err != nil {
				return nil, fail(exitEnv, err)
			}
			named = append(named, found...)
		}
		if len(named) == 0 {
			return nil, fail(exitNotFound, fmt.Errorf("there is none of %s in %s; name the files", strings.Join(patterns, ", "), top))
		}
	}
	take := adopt.GitHub
	if from == "woodpecker" {
		take = adopt.Woodpecker
	}
	var files []adopt.File
	for _, name := range named {
		src, err := readBounded(name)
		if err != nil {
			return nil, unreadable(err)
		}
		r, err := take(filepath.Base(name), src)
		if err != nil {
			return nil, fail(exitInvalid, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "adopt: ")))
		}
		shown := name
		if rel, err := filepath.Rel(top, name); err == nil && !strings.HasPrefix(rel, "..") {
			shown = rel
		}
		for _, n := range r.Notes {
			fmt.Fprintf(b, "%s:%d: not taken over: %s\n    %s\n", shown, n.Line, n.What, n.Do)
		}
		files = append(files, r.Files...)
	}
	return files, nil
}

// checkMade lints what was made, together, and says what is left to do.
func checkMade(files []adopt.File, b *strings.Builder) (bad int) {
	for _, f := range files {
		spec, ds := workflow.Parse(workflow.Dir+f.Name, f.Data, workflow.Limits{})
		if spec == nil {
			bad++
		}
		for _, d := range ds {
			b.WriteString(d.String() + "\n")
		}
	}
	return bad
}

// writeFiles writes the files, all or none.
func writeFiles(top string, files []adopt.File, force bool, b *strings.Builder) error {
	dir := filepath.Join(top, workflow.Dir)
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil && !force {
			return fail(exitNotRun, fmt.Errorf("%s%s is there already; --force writes over it, --print shows what would be written", workflow.Dir, f.Name))
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(exitEnv, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(exitEnv, err)
	}
	for _, f := range files {
		if err := replaceFile(filepath.Join(dir, f.Name), f.Data, 0o644); err != nil {
			return fail(exitEnv, err)
		}
		fmt.Fprintf(b, "wrote %s%s\n", workflow.Dir, f.Name)
	}
	return nil
}

// replaceFile puts data in the place of a file, whole or not at all.
func replaceFile(name string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".spindle-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // best effort: the error is told
	}
	return err
}
