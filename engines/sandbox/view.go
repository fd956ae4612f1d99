package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"spindle/engines"
)

const home = "/home/" + engines.User

// view is what an attempt sees as its root file system. That of the host image is a skeleton, and what of the machine
// is shown in it.
type view struct {
	root     string        // path of the root on the server
	mounts   []specs.Mount // read-only binds of the machine's tools
	path     string        // PATH for commands
	env      []string      // what else the image says
	bash     bool          // there is bash
	uid, gid int           // of who runs commands
	user     string
}

// usualPath is where distributions have the programs that init needs.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// shown are folders of the machine that a job may read. Where one is a link (merged /usr) it stays a link.
var shown = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/run/current-system"}

// certs are the places where distributions keep the public certificates of authorities.
var certs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted"}

// masked are parts of the shown folders that may hold the operator's settings.
var masked = []string{"/usr/local/etc", "/usr/etc"}

// hostPrefix begins the names of skeletons in the state folder.
const hostPrefix = "host-"

// reserved says why a guest path may not be used for a workspace or a mount, or "".
func reserved(target string) string {
	for _, dir := range append([]string{"/etc", "/proc", "/dev", "/sys", "/run", "/tmp", "/root", kitDir}, shown...) {
		if target == dir || strings.HasPrefix(target, dir+"/") {
			return "it is inside " + dir
		}
	}
	if target == "/home" || target == home || target == "/workspace" {
		return "it is " + target
	}
	return ""
}

// buildHostView makes a skeleton in a folder of its own below state, and finds out what the machine has. What an
// earlier server left is not touched: its sandboxes may still be ending. Sweep removes it.
func buildHostView(state string, self identity) (*view, error) {
	root, err := os.MkdirTemp(state, hostPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(root, 0o755); err != nil { // it is the / of every attempt
		return nil, err
	}
	for _, dir := range []string{"etc/ssl", "proc", "sys", "dev", "tmp", "run", "root", "var/tmp", filesDir[1:], "home", home[1:], engines.DefaultWorkspace[1:]} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	modes := map[string]os.FileMode{"tmp": 0o777 | fs.ModeSticky, "var/tmp": 0o777 | fs.ModeSticky, "root": 0o700}
	for dir, mode := range modes { // apart from MkdirAll, which the umask cuts
		if err := os.Chmod(filepath.Join(root, dir), mode); err != nil {
			return nil, err
		}
	}
	if self.root {
		for _, dir := range []string{home, engines.DefaultWorkspace} {
			if err := os.Chown(filepath.Join(root, dir), engines.UserID, engines.UserID); err != nil {
				return nil, err
			}
		}
	}
	// gVisor puts a memory file system over an empty /tmp. One that is not empty stays on the disk-backed layer.
	if err := os.WriteFile(filepath.Join(root, "tmp", ".keep"), nil, 0o444); err != nil {
		return nil, err
	}
	v := &view{root: root, uid: engines.UserID, gid: engines.UserID, user: engines.User}
	if err := v.showTools(); err != nil {
		return nil, err
	}
	if err := v.writeEtc(); err != nil {
		return nil, err
	}
	v.path = v.searchPath()
	v.bash = exists("/bin/bash") || exists("/usr/bin/bash")
	if !exists("/bin/sh") {
		return nil, errors.New("this machine has no /bin/sh, which the host image needs")
	}
	return v, nil
}

// showTools adds a link or a read-only bind for each of the shown folders that exists.
func (v *view) showTools() error {
	for _, dir := range append(append([]string{}, shown...), certs...) {
		at := filepath.Join(v.root, dir)
		st, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(dir)
			if err != nil {
				return err
			}
			if err := os.Symlink(to, at); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		v.mounts = append(v.mounts, bind(dir, dir))
	}
	for _, dir := range masked {
		if names, err := os.ReadDir(dir); err == nil && len(names) > 0 {
			v.mounts = append(v.mounts, specs.Mount{Destination: dir, Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "mode=0755"}})
		}
	}
	return nil
}

// writeEtc makes the /etc of a machine on which two accounts exist.
func (v *view) writeEtc() error {
	user := fmt.Sprintf("%s:x:%d:", engines.User, engines.UserID)
	files := map[string]string{
		"passwd":        "root:x:0:0:root:/root:/bin/sh\n" + user + fmt.Sprintf("%d:%s:%s:/bin/sh\n", engines.UserID, engines.User, home) + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\n" + user + "\nnogroup:x:65534:\n",
		"hostname":      hostname + "\n",
		"hosts":         "127.0.0.1 localhost " + hostname + "\n::1 localhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
		"resolv.conf":   "",
		// The checkout is written by one user and may be read by root: git must not refuse that.
		"gitconfig": "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n",
		"shells":    "/bin/sh\n/bin/bash\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(v.root, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"ld.so.cache", "ld.so.conf", "protocols", "services", "mime.types", "localtime", "ssl/openssl.cnf"} {
		if err := copySmall("/etc/"+name, filepath.Join(v.root, "etc", name)); err != nil {
			return err
		}
	}
	if to, err := os.Readlink("/etc/os-release"); err == nil {
		if err := os.Symlink(to, filepath.Join(v.root, "etc/os-release")); err != nil {
			return err
		}
	}
	return v.copyLinks("/etc/alternatives")
}

// copyLinks copies the symbolic links of a folder; they name tools under /usr.
func (v *view) copyLinks(dir string) error {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(v.root, dir), 0o755); err != nil {
		return err
	}
	for _, n := range names {
		if to, err := os.Readlink(filepath.Join(dir, n.Name())); err == nil {
			if err := os.Symlink(to, filepath.Join(v.root, dir, n.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// searchPath is the PATH of commands: the usual folders, and those where toolchains live that exist.
func (v *view) searchPath() string {
	dirs := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, dir := range []string{"/usr/local/go/bin", "/run/current-system/sw/bin"} {
		if exists(dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

// maxCopied bounds a file of /etc that is copied: a linker cache of a large desktop is some hundred KiB.
const maxCopied = 4 << 20

// copySmall copies a public file if there is one. A file that others may not read, or that is larger than
// maxCopied, is left out.
func copySmall(from, to string) error {
	st, err := os.Stat(from)
	if err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o004 == 0 || st.Size() > maxCopied {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

func bind(source, target string) specs.Mount {
	return specs.Mount{Source: source, Destination: target, Type: "bind", Options: []string{"rbind", "ro", "nosuid", "nodev"}}
}

// exists says that there is something at path that can be followed to.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
