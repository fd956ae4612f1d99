package knot

import (
	"fmt"
	"path/filepath"
	"strings"
)

// CheckoutScript is a POSIX shell script that, run in an empty directory of the job, checks co out there.
// mount is where the job sees co.Dir, read-only. It starts as few processes as it can (one mkdir and one
// git for each repository), since each costs in a sandbox, and reads no configuration but its own. The
// work tree borrows its objects from the mount, so the mount must stay as long as the work tree is used.
//
// Whatever comes from the repository (paths and names of submodules, addresses) stands in single
// quotes; nothing of it is read as shell.
func CheckoutScript(co Checkout, mount string) string {
	if co.Tree {
		return "cp -a -- " + quote(mount+"/.") + " .\n"
	}
	var b strings.Builder
	b.WriteString(`set -eu
command -v git >/dev/null 2>&1 || { echo 'spindle: the image has no git; the checkout needs it (or set clone.skip)' >&2; exit 127; }
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
`)
	cuts := ""
	if co.Shallow {
		cuts = quote(mount + "/shallow")
	}
	if co.Shallow && co.depth == 1 {
		cuts = onlySelf
	}
	workTree(&b, ".", mount, co.SHA, config(co.CloneURL, co.SHA, co.childrenOf(-1)), cuts, co.Tags)
	for i, s := range co.Submodules {
		rel, err := filepath.Rel(co.Dir, s.Dir)
		if err != nil {
			continue // cannot be: both are absolute, one inside the other
		}
		workTree(&b, "./"+s.Path, mount+"/"+filepath.ToSlash(rel), s.SHA, config(s.URL, s.SHA, co.childrenOf(i)), onlySelf, false)
	}
	return b.String()
}

// childrenOf lists the submodules right inside the one with index i, or inside the checkout for -1.
func (co Checkout) childrenOf(i int) []Submodule {
	var out []Submodule
	for _, s := range co.Submodules {
		if s.parent == i {
			out = append(out, s)
		}
	}
	return out
}

// onlySelf stands for a history that is cut off at the commit itself, which needs no file to be read.
const onlySelf = "."

// workTree writes the lines that make one repository and its files in dir. cuts is where its history is
// cut off: nowhere (""), onlySelf, or a quoted file name.
func workTree(b *strings.Builder, dir, store, sha, conf, cuts string, tags bool) {
	g := dir + "/.git"
	fmt.Fprintf(b, "mkdir -p %s %s %s %s\n", quote(g+"/objects/info"), quote(g+"/objects/pack"), quote(g+"/refs/heads"), quote(g+"/refs/tags"))
	fmt.Fprintf(b, "printf '%%s\\n' %s >%s\n", quote(store+"/objects"), quote(g+"/objects/info/alternates"))
	fmt.Fprintf(b, "printf '%%s' %s >%s\n", quote(conf), quote(g+"/config"))
	fmt.Fprintf(b, "printf '%%s\\n' %s >%s\n", quote(sha), quote(g+"/HEAD"))
	switch cuts {
	case "":
	case onlySelf:
		fmt.Fprintf(b, "printf '%%s\\n' %s >%s\n", quote(sha), quote(g+"/shallow"))
	default:
		fmt.Fprintf(b, "cat %s >%s\n", cuts, quote(g+"/shallow"))
	}
	if tags {
		fmt.Fprintf(b, "cat %s >%s\n", quote(store+"/packed-refs"), quote(g+"/packed-refs"))
	}
	fmt.Fprintf(b, "git -C %s -c core.hooksPath=/dev/null -c core.fsmonitor=false -c submodule.recurse=false -c safe.directory='*' -c advice.detachedHead=false reset -q --hard %s --\n", quote(dir), sha)
}

// config is the text of a .git/config file. Values are quoted as git-config(1) has it.
func config(url, sha string, subs []Submodule) string {
	var b strings.Builder
	if len(sha) == 64 {
		b.WriteString("[core]\n\trepositoryformatversion = 1\n")
	} else {
		b.WriteString("[core]\n\trepositoryformatversion = 0\n")
	}
	b.WriteString("\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n")
	if len(sha) == 64 {
		b.WriteString("[extensions]\n\tobjectFormat = sha256\n")
	}
	fmt.Fprintf(&b, "[remote \"origin\"]\n\turl = %s\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", configValue(url))
	for _, s := range subs {
		fmt.Fprintf(&b, "[submodule %s]\n\tactive = true\n\turl = %s\n", configValue(s.Name), configValue(s.URL))
	}
	return b.String()
}

// configValue quotes s, which has no control characters, for a git configuration file.
func configValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// quote makes s one word of a POSIX shell, whatever is in it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
