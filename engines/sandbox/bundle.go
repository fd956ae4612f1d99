package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"spindle/engines"
)

const hostname = "spindle"

// rootCaps are what the attempt's root may do to the attempt's own files and processes. The workflow user has none.
var rootCaps = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETPCAP", "CAP_SETFCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT",
}

// initScript is the first process: it bounds how many processes there may be, gives folders to the workflow user, says
// that it is there, answers what is asked for the files of commands (see collect), and then reaps what commands leave
// behind, which is what a shell that waits does. Its arguments are the owner, the bound and the folders, and never part
// of the text. An image has no folder for those files, or one of somebody's: it is made root's.
var initScript = `cd /sys/fs/cgroup && echo +pids > cgroup.subtree_control && echo "$1" > a/pids.max || exit 71
cd /
shift
if [ $# -gt 0 ]; then mkdir -p "$1" && chown "$0" "$@" || exit 70; fi
umask 0
[ -O /spindle ] && [ -O ` + filesDir + ` ] || { mkdir -p ` + filesDir + ` && chown 0:0 /spindle ` + filesDir + ` && chmod 755 /spindle ` + filesDir + `; } || exit 72
cd ` + filesDir + ` && : > 0 && : > 1 && : > 2 && : > 3 || exit 72
exec 3<&0
echo up
while IFS= read -r t <&3; do
for f in 0 1 2 3; do
if [ -s $f ]; then echo $f; head -c ` + collectBytes + ` $f; echo; echo $t; : > $f; fi
done
echo $t.
done &
sleep 2147483647 &
wait`

// initPids is how many processes init itself is: the shell, the one that answers, and sleep.
const initPids = 3

// bundle writes the OCI bundle of an attempt.
func (e *Engine) bundle(dir string, v *view, s engines.Spec, b bounds) error {
	owner := fmt.Sprintf("%d:%d", v.uid, v.gid)
	args := []string{"/bin/sh", "-c", initScript, owner, strconv.FormatInt(b.pids+initPids, 10)}
	if !e.self.root || s.Workspace != engines.DefaultWorkspace {
		args = append(args, s.Workspace, home)
	}
	return e.writeBundle(dir, v, s, v.process(args, "/", []string{"PATH=" + v.path + ":" + usualPath}, true))
}

// writeBundle writes a config.json in dir, around the shared skeleton, with p as the first process.
func (e *Engine) writeBundle(dir string, v *view, s engines.Spec, p *specs.Process) error {
	// When the machine itself runs out of memory, a sandbox is to go before the server.
	first := 1000
	p.OOMScoreAdj = &first
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev"}},
	}
	mounts = append(mounts, v.mounts...)
	for _, m := range s.Mounts {
		mounts = append(mounts, bind(m.Source, m.Target))
	}
	config := specs.Spec{
		Version:  "1.0.2",
		Hostname: hostname,
		Root:     &specs.Root{Path: v.root},
		Mounts:   mounts,
		Process:  p,
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
		}},
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}

// process describes one guest process, for config.json and for runsc exec alike.
func (v *view) process(args []string, dir string, env []string, asRoot bool) *specs.Process {
	p := &specs.Process{
		Args: args, Cwd: dir, Env: env, NoNewPrivileges: true,
		User:         specs.User{UID: uint32(v.uid), GID: uint32(v.gid)},
		Capabilities: &specs.LinuxCapabilities{},
		Rlimits: []specs.POSIXRlimit{
			{Type: "RLIMIT_CORE", Hard: 0, Soft: 0},
			{Type: "RLIMIT_NOFILE", Hard: 65536, Soft: 65536},
		},
	}
	if asRoot {
		p.User = specs.User{}
		p.Capabilities = &specs.LinuxCapabilities{Bounding: rootCaps, Effective: rootCaps, Permitted: rootCaps}
	}
	return p
}
