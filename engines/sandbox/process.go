package sandbox

import (
	"os"
	"os/exec"
	"syscall"
)

// identity is the account that the server runs as.
type identity struct {
	uid, gid int
	root     bool
}

func whoAmI() identity {
	return identity{uid: os.Geteuid(), gid: os.Getegid(), root: os.Geteuid() == 0}
}

// runsc is a command line of the runsc executable for the attempt whose state is below dir. Its environment is
// empty but for a PATH: nothing of the server's own reaches it. It dies with the thread that starts it, which must
// therefore live as long as the process (see attempt.boot).
func (e *Engine) runsc(dir string, args ...string) *exec.Cmd {
	global := []string{
		e.cfg.Argv0,
		"--root=" + runDir(dir),
		"--network=none",
		"--platform=systrap",
		"--ignore-cgroups",
		"--in-sandbox-cgroup=v2",
		"--overlay2=root:dir=" + dir,
		"--host-settings=ignore",
	}
	return &exec.Cmd{
		Path:        e.cfg.Runsc,
		Args:        append(global, args...),
		Env:         []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Dir:         "/",
		SysProcAttr: e.self.attributes(),
	}
}

// attributes put a process of runsc into its own session and namespaces. As an ordinary user it becomes root of
// a new user namespace in which nobody else exists. The mount namespace keeps gVisor's own mounts (it binds an
// empty network namespace into its state folder) from staying on the machine.
func (id identity) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	if !id.root {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id.uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id.gid, Size: 1}}
	}
	return attr
}

// execAttributes are for runsc exec, which mounts nothing and ends with its sandbox.
func (id identity) execAttributes() *syscall.SysProcAttr {
	attr := id.attributes()
	attr.Unshareflags, attr.Pdeathsig = 0, 0
	return attr
}

// runDir is where gVisor keeps the state of an attempt's container, and its control socket.
func runDir(dir string) string { return dir + "/r" }

// containerID is the name of an attempt's only container. It is short because it is part of a socket's path.
const containerID = "a"
