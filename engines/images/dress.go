package images

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"spindle/engines"
)

// defaultPath is PATH where the image sets none; nixery's images have everything in /bin.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// home is the home of whoever runs commands.
const home = "/home/" + engines.User

// ErrNoShell refuses an image without a shell, in which no step could run.
var ErrNoShell = errors.New("images: no /bin/sh")

// dress adds to an assembled root what attempts rely on in every image, and finds out what is in it. Files of the image
// are replaced, never written to: they are the layers' own.
func (s *Store) dress(r request, f *found, dir string) (rootMeta, error) {
	m := rootMeta{
		Version: rootVersion, Digest: f.digest, Tops: f.tops, Names: []string{r.ref.Name()}, Private: f.private, Chowned: s.root,
		Env: environment(f.config.Config.Env),
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, fmt.Errorf("images: open an image's folder: %w", err)
	}
	defer root.Close()
	d := dresser{tree: newTree(root), chown: s.root}
	defer d.tree.close()
	if !d.program("/bin/sh") {
		return m, fault(fmt.Sprintf("image %q has no /bin/sh, which steps need; use one with a shell, such as a -debug or -slim variant", clip(r.text, 200)), ErrNoShell, nil)
	}
	for _, p := range strings.Split(pathOf(m.Env), ":") {
		m.Bash = m.Bash || d.program(p+"/bash")
		m.Git = m.Git || d.program(p+"/git")
	}
	passwd, group := d.text("/etc/passwd"), d.text("/etc/group")
	if m.UID, m.GID, m.User, err = account(f.config.Config.User, passwd, group); err != nil {
		return m, fault(fmt.Sprintf("image %q says to run as %q, an account that it does not have", clip(r.text, 200), clip(f.config.Config.User, 60)), ErrDamaged, err)
	}
	if err := d.dress(m, passwd, group); err != nil {
		return m, fmt.Errorf("images: complete an image: %w", err)
	}
	return m, nil
}

// environment is the image's, without what no process could get. It always has a PATH.
func environment(env []string) []string {
	var out []string
	n := 0
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if n += len(kv) + 1; !ok || name == "" || strings.ContainsRune(kv, 0) || n > 128<<10 {
			continue
		}
		out = append(out, kv)
	}
	if pathOf(out) == "" {
		out = append(out, "PATH="+defaultPath)
	}
	return out
}

func pathOf(env []string) string {
	p := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			p = v
		}
	}
	return p
}

// account is who commands run as. Images that name nobody, or root, get the workflow's own user, as on the machine
// itself; an image that names another has its files made for that one.
func account(user, passwd, group string) (uid, gid int, name string, err error) {
	who, of, hasGroup := strings.Cut(user, ":")
	if who == "" || who == "root" || who == "0" {
		return engines.UserID, engines.UserID, engines.User, nil
	}
	uid, err = strconv.Atoi(who)
	line := lookup(passwd, func(f []string) bool { return f[0] == who || err == nil && f[2] == who })
	switch {
	case line != nil:
		name = line[0]
		if uid, err = strconv.Atoi(line[2]); err != nil {
			return 0, 0, "", err
		}
		if gid, err = strconv.Atoi(line[3]); err != nil {
			return 0, 0, "", err
		}
	case err != nil:
		return 0, 0, "", fmt.Errorf("no account %q", who)
	default:
		name, gid = who, 0 // as container runtimes do for a number without an account
	}
	if hasGroup {
		g, err := strconv.Atoi(of)
		if line := lookup(group, func(f []string) bool { return f[0] == of }); line != nil {
			g, err = strconv.Atoi(line[2])
		}
		if err != nil {
			return 0, 0, "", fmt.Errorf("no group %q", of)
		}
		gid = g
	}
	if uid == 0 {
		return engines.UserID, engines.UserID, engines.User, nil
	}
	if uid < 0 || gid < 0 || owner(uid) != uid || owner(gid) != gid {
		return 0, 0, "", fmt.Errorf("account %d:%d is out of range", uid, gid)
	}
	return uid, gid, name, nil
}

// lookup finds a line of passwd or group; both have at least four fields (passwd(5), group(5)).
func lookup(file string, is func(fields []string) bool) []string {
	for line := range strings.Lines(file) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) >= 4 && is(f) {
			return f
		}
	}
	return nil
}

// dresser works in one assembled root.
type dresser struct {
	tree  tree
	chown bool
}

// find is where path leads inside the image, or "".
func (d *dresser) find(p string) string {
	at, err := d.tree.follow(strings.TrimPrefix(p, "/"), false)
	if err != nil {
		return ""
	}
	return at
}

// program says that p leads to an executable file.
func (d *dresser) program(p string) bool {
	at := d.find(p)
	if at == "" {
		return false
	}
	st, err := d.tree.root.Lstat(at)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// maxText bounds a file of accounts.
const maxText = 1 << 20

// text is the content of a small file, or "" where there is none that can be read.
func (d *dresser) text(p string) string {
	at := d.find(p)
	if at == "" {
		return ""
	}
	st, err := d.tree.root.Lstat(at)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxText {
		return ""
	}
	f, err := d.tree.root.Open(at)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	if err != nil || bytes.ContainsRune(b, 0) {
		return ""
	}
	return string(b)
}

// dress writes files and makes folders.
func (d *dresser) dress(m rootMeta, passwd, group string) error {
	for _, dir := range []struct {
		path string
		attributes
		keep bool // what the image says of it counts
	}{
		{"/etc", attributes{mode: 0o755}, true}, {"/proc", attributes{mode: 0o755}, false}, {"/sys", attributes{mode: 0o755}, false},
		{"/dev", attributes{mode: 0o755}, false}, {"/run", attributes{mode: 0o755}, true}, {"/root", attributes{mode: 0o700}, true},
		{"/tmp", attributes{mode: 0o777 | fs.ModeSticky}, false}, {"/var/tmp", attributes{mode: 0o777 | fs.ModeSticky}, false},
		{"/home", attributes{mode: 0o755}, true}, {home, attributes{mode: 0o755, uid: m.UID, gid: m.GID}, false},
		{path.Dir(engines.DefaultWorkspace), attributes{mode: 0o755}, true},
		{engines.DefaultWorkspace, attributes{mode: 0o755, uid: m.UID, gid: m.GID}, false},
	} {
		existed := d.find(dir.path) != ""
		at, err := d.tree.follow(strings.TrimPrefix(dir.path, "/"), true)
		if err != nil {
			return err
		}
		if existed && dir.keep {
			continue
		}
		if err := setDir(d.tree.root, at, dir.attributes, d.chown); err != nil {
			return err
		}
	}
	hosts := "127.0.0.1 localhost spindle\n::1 localhost\n"
	files := []struct {
		path, text string
		keep       bool
	}{
		{"/etc/passwd", withAccount(passwd, "root:x:0:0:root:/root:/bin/sh\n", fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/sh\n", engines.User, engines.UserID, engines.UserID, engines.User, home), engines.UserID), false},
		{"/etc/group", withAccount(group, "root:x:0:\n", fmt.Sprintf("%s:x:%d:\n", engines.User, engines.UserID), engines.UserID), false},
		{"/etc/hostname", "spindle\n", false}, {"/etc/hosts", hosts, false}, {"/etc/resolv.conf", "", false},
		// The checkout is written by one user and may be read by root: git must not refuse that.
		{"/etc/gitconfig", "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n", true},
		// gVisor puts a memory file system over an empty /tmp. One that is not empty stays on the disk-backed layer.
		{"/tmp/.keep", "", false},
	}
	for _, f := range files {
		if f.keep && d.find(f.path) != "" {
			continue
		}
		if err := d.write(f.path, f.text); err != nil {
			return err
		}
	}
	return nil
}

// write makes a new file in the place of whatever is there, the target of a symbolic link excepted: the link goes.
func (d *dresser) write(p, text string) error {
	parent, base, err := d.tree.parent(strings.TrimPrefix(p, "/"))
	if err != nil {
		return err
	}
	return d.tree.replace(path.Join(parent, base), func(dir *os.Root, base string) error {
		f, err := dir.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Chmod(0o644), f.Close())
	})
}

// withAccount is a file of accounts with root's and the workflow user's lines. A number that the file knows under another
// name is found under ours first.
func withAccount(file, root, ours string, id int) string {
	if file == "" {
		return root + ours
	}
	if !strings.HasSuffix(file, "\n") {
		file += "\n"
	}
	for sc := bufio.NewScanner(strings.NewReader(file)); sc.Scan(); {
		f := strings.Split(sc.Text(), ":")
		if len(f) > 2 && (f[2] == strconv.Itoa(id) || f[0] == engines.User) {
			return ours + file
		}
	}
	return file + ours
}
