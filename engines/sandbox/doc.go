// Package sandbox is the engine that runs an attempt in gVisor: a kernel of its own in user space, without a
// daemon, a hypervisor or a root file system to download.
//
// It owns one folder (Config.StateDir) and the processes of one runsc per open attempt. It drives the runsc
// executable that it is given and links none of gVisor; in production that executable is spindle itself,
// which turns into runsc when its argument zero says so.
//
// # What an attempt sees
//
// The image "host" is a private view of the machine's tools: /usr, /bin, /sbin, /lib*, /opt (and a Nix store, if any)
// read-only, a made-up /etc, its own /proc, /dev and /tmp, a home for the workflow user and the workspace.
// Nothing else of the machine is there. What the attempt writes goes to a layer that is removed with it. The
// network is a loopback of its own and nothing else.
//
//	Open --> runsc run (init waits) --> ready --> runsc exec (one per command) ... --> Close
//	              |                                      |
//	              +--- killed as one: timeout, cancel, Close, death of the server
//
// # What bounds an attempt
//
//   - Files: the written layer lies in StateDir and cannot outgrow Config.Disk, /tmp included.
//   - Memory and processes: control groups of the machine where the server may write them (root), see
//     Limits in Probe's answer. Elsewhere the engine itself watches memory and ends an attempt that is over its bound.
//   - Time: the caller's contexts and timeouts.
//
// # What it refuses
//
// Images other than "host", mounts that cover the machine's own folders, a runsc that is dynamically linked
// (gVisor executes itself again where no loader can be found), a state folder whose path is too long for a socket.
//
// # Invariants
//
//   - No variable, argument or file of an attempt reaches the command line of a process of this machine: commands
//     are handed over through pipes, since command lines are readable by every user.
//   - Guest programs never hold the stderr of runsc, so its own words cannot end in a job's log.
//   - When the server dies, the kernel ends its sandboxes (parent death signal); Sweep removes the files.
//   - As an ordinary user everything runs in a new user namespace where only that user exists; as root, gVisor
//     itself drops to an unprivileged user in a namespace after the mounts are made.
//
// Data comes from the runner (Spec, Command); output goes to the writers of a Command.
package sandbox
