package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"spindle/knot"
	"spindle/workflow"
)

// maxEntries is how many entries of a folder of workflows are looked at.
const maxEntries = 1000

// fileSet is what is read as the workflow files of one commit.
type fileSet struct {
	files []workflow.File
	// names are what people call the files, by their paths in the commit.
	names map[string]string
	// partial says that there may be other files, which these may need.
	partial bool
}

// name is what people call the file with that path in the commit.
func (s fileSet) name(file string) string {
	if n, ok := s.names[file]; ok {
		return n
	}
	return file
}

// find reads what paths name: files, repositories, or - for standard input; without any, the repository around
// the current folder.
func (l *linter) find(paths []string) ([]fileSet, error) {
	if len(paths) == 0 {
		top, err := repository()
		if err != nil {
			return nil, err
		}
		s, err := readFolder(filepath.Join(top, workflow.Dir))
		return []fileSet{s}, err
	}
	if n := len(paths); n > 1 && slices.Contains(paths, "-") {
		return nil, fail(exitUsage, errors.New("- stands for standard input and goes alone"))
	}
	var out []fileSet
	for _, p := range paths {
		s, err := l.read(p)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// read reads one path of the command line.
func (l *linter) read(p string) (fileSet, error) {
	if p == "-" {
		data, err := bounded(l.stdin)
		if err != nil {
			return fileSet{}, fail(exitEnv, fmt.Errorf("read standard input: %w", err))
		}
		return alone("stdin", data), nil
	}
	info, err := os.Stat(p)
	switch {
	case err != nil:
		return fileSet{}, unreadable(err)
	case info.Mode().IsRegular():
		data, err := readBounded(p)
		if err != nil {
			return fileSet{}, unreadable(err)
		}
		return alone(filepath.ToSlash(p), data), nil
	case !info.IsDir():
		return fileSet{}, fail(exitUsage, fmt.Errorf("%s is neither a file nor a folder", p))
	}
	folder := filepath.Join(p, workflow.Dir)
	if _, err := os.Lstat(folder); errors.Is(err, fs.ErrNotExist) {
		if abs, err := filepath.Abs(p); err == nil && strings.HasSuffix(filepath.ToSlash(abs)+"/", "/"+workflow.Dir) {
			folder = p
		}
	}
	return readFolder(folder)
}

// alone is the set of one file that people call name.
func alone(name string, data []byte) fileSet {
	base := path.Base(name)
	if !strings.HasSuffix(base, ".yml") && !strings.HasSuffix(base, ".yaml") {
		base += ".yml" // who names a file means it
	}
	f := workflow.File{Path: workflow.Dir + base, Data: data}
	return fileSet{partial: true, files: []workflow.File{f}, names: map[string]string{f.Path: name}}
}

// repository is the nearest folder, from the current one upwards to the top of the repository, that has workflows.
func repository() (string, error) {
	dir := "."
	for {
		if _, err := os.Lstat(filepath.Join(dir, workflow.Dir)); err == nil {
			return dir, nil
		}
		_, err := os.Lstat(filepath.Join(dir, ".git"))
		abs, errAbs := filepath.Abs(dir)
		if errAbs != nil {
			return "", fail(exitEnv, fmt.Errorf("find the current folder: %w", errAbs))
		}
		if err == nil || filepath.Dir(abs) == abs {
			return "", fail(exitNotFound, fmt.Errorf("there is no %s here or above, up to %s", workflow.Dir, abs))
		}
		dir = filepath.Join(dir, "..")
	}
}

// readFolder reads the workflow files of a folder, as a git host would hand them out: regular files alone.
func readFolder(folder string) (fileSet, error) {
	for _, part := range []string{filepath.Dir(folder), folder} {
		info, err := os.Lstat(part)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fileSet{}, fail(exitNotFound, fmt.Errorf("there is no folder %s", folder))
		case err != nil:
			return fileSet{}, unreadable(err)
		case info.Mode()&fs.ModeSymlink != 0 && part != ".":
			return fileSet{}, fail(exitInvalid, fmt.Errorf("%s is a symbolic link; workflow files are read from real folders only", part))
		case !info.IsDir():
			return fileSet{}, fail(exitInvalid, fmt.Errorf("%s is not a folder", part))
		}
	}
	d, err := os.Open(folder)
	if err != nil {
		return fileSet{}, unreadable(err)
	}
	defer d.Close()
	entries, err := d.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fileSet{}, unreadable(err)
	}
	if len(entries) > maxEntries {
		return fileSet{}, fail(exitInvalid, fmt.Errorf("%s has more than %d entries", folder, maxEntries))
	}
	s := fileSet{names: map[string]string{}}
	total := 0
	for _, e := range entries {
		f := workflow.File{Path: workflow.Dir + e.Name()}
		name := filepath.Join(folder, e.Name())
		s.names[f.Path] = filepath.ToSlash(name)
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			f.NotTaken = "it is a symbolic link"
		case e.IsDir():
			f.NotTaken = "folders in " + workflow.Dir + " are not read"
		case !e.Type().IsRegular():
			f.NotTaken = "it is not a regular file"
		case strings.HasSuffix(e.Name(), ".yml") || strings.HasSuffix(e.Name(), ".yaml"):
			if f.Data, err = readBounded(name); err != nil {
				return fileSet{}, unreadable(err)
			}
			if total += len(f.Data); total > knot.MaxWorkflowBytes {
				f.Data, f.NotTaken = nil, fmt.Sprintf("the files of a commit may have %d bytes in all", knot.MaxWorkflowBytes)
			}
		}
		s.files = append(s.files, f)
	}
	return s, nil
}

// readBounded reads the file called name, or as much of it as shows that it is too large.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded(f)
}

// bounded reads r, or one byte more than a workflow file may have.
func bounded(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, int64(workflow.DefaultLimits().FileBytes)+1))
}

// unreadable ends the program because of a file.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fail(exitNotFound, err)
	}
	return fail(exitEnv, err)
}
