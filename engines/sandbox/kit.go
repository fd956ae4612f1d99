package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// kitDir is where an image without git sees the machine's. It stands last in PATH.
const kitDir = "/spindle/tools"

// kit is the machine's git with the libraries and the loader that it needs, so that it runs in any image: most images
// have no git, and the checkout needs one. It is made when it is first needed.
type kit struct {
	once sync.Once
	mu   sync.Mutex
	dir  string // empty where it could not be made
}

// at is the kit's folder, or empty.
func (k *kit) at() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dir
}

// mount shows the kit to an attempt. Where the machine has no git, or one that cannot be taken along, there is none, and
// the checkout says what is missing.
func (k *kit) mount(state string, log *slog.Logger) (specs.Mount, bool) {
	k.once.Do(func() {
		dir, err := os.MkdirTemp(state, hostPrefix+"kit-")
		if err == nil {
			err = fillKit(dir)
		}
		if err != nil {
			log.Warn("images without git get none of this machine's", "err", err)
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.dir = dir
	})
	dir := k.at()
	return bind(dir, kitDir), dir != ""
}

// kitScript starts git by its own loader. Its files are found beside it; templates are of no use here.
const kitScript = `#!/bin/sh
export GIT_EXEC_PATH=` + kitDir + ` GIT_TEMPLATE_DIR=
exec ` + kitDir + `/lib/%s --library-path ` + kitDir + `/lib ` + kitDir + `/lib/git "$@"
`

// staticScript is for a git that needs no loader.
const staticScript = `#!/bin/sh
export GIT_EXEC_PATH=` + kitDir + ` GIT_TEMPLATE_DIR=
exec ` + kitDir + `/lib/git "$@"
`

// libraries are the lines of ldd that name files: "libz.so.1 => /lib/libz.so.1 (0x…)", and the loader's, which
// has no arrow.
var (
	libraryLine = regexp.MustCompile(`(?m)^\s*(\S+) => (/\S+) \(0x[0-9a-f]+\)$`)
	loaderLine  = regexp.MustCompile(`(?m)^\s*(/\S+) (?:=> /\S+ )?\(0x[0-9a-f]+\)$`)
)

// Programs finds the git that images without one are given, and says whether it can be taken along.
func Programs(git string) (path string, portable bool, err error) {
	if git == "" {
		git = "git"
	}
	if path, err = exec.LookPath(git); err != nil {
		return "", false, fmt.Errorf("sandbox: look for git: %w", err)
	}
	_, err = exec.LookPath("ldd")
	return path, err == nil, nil
}

func fillKit(dir string) error {
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	lib := filepath.Join(dir, "lib")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(lib, 0o755)); err != nil {
		return err
	}
	files := map[string]string{"git": git}
	script := staticScript
	out, err := exec.Command("ldd", git).CombinedOutput()
	if err == nil {
		loader := loaderLine.FindSubmatch(out)
		if loader == nil {
			return fmt.Errorf("ldd names no loader of %s", git)
		}
		for _, m := range libraryLine.FindAllSubmatch(out, -1) {
			files[filepath.Base(string(m[1]))] = string(m[2])
		}
		files[filepath.Base(string(loader[1]))] = string(loader[1])
		script = fmt.Sprintf(kitScript, filepath.Base(string(loader[1])))
	} else if !bytes.Contains(out, []byte("not a dynamic")) {
		return fmt.Errorf("ldd %s: %w: %s", git, err, out)
	}
	for name, from := range files {
		if err := copyProgram(from, filepath.Join(lib, name)); err != nil {
			return err
		}
	}
	at := filepath.Join(dir, "git")
	return errors.Join(os.WriteFile(at, []byte(script), 0o755), os.Chmod(at, 0o755))
}

// maxProgram bounds a file of the kit.
const maxProgram = 64 << 20

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if st, err := in.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxProgram || st.Mode().Perm()&0o004 == 0 {
		return errors.Join(err, fmt.Errorf("%s is no public program: %w", from, fs.ErrInvalid))
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Close())
}
