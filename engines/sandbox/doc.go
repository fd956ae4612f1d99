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
//   - Memory of its processes and what it writes (temporary files included): the engine looks every 100 ms at the two
//     files that gVisor keeps them in, and ends an attempt that is over. This needs no control group and holds for
//     root and ordinary users alike. An attempt can be over for that moment, so the bound is not for packing a machine full.
//   - Processes and threads: gVisor's own control group (version 2: of the several hierarchies of version 1 it charges a
//     fork to one at random) refuses forks beyond the bound. The attempt's root can lift it;
//     the workflow user cannot.
//   - Time: the caller's contexts and timeouts.
//   - When the machine itself runs out of memory, the kernel is told to end sandboxes before the server.
//
// Processor time is not bounded here.
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
//   - gVisor's processes run in user namespaces of their own, below a root that shows only the view, with a system call
//     filter and the five capabilities of file owners. As an ordinary user they are that user and nobody else exists in
//     the namespace. As root they keep uid 0, so that private mounts can be read: what lies unreadable for others
//     below /usr or /opt can then be read by the attempt's root. Running the server as an ordinary user is the narrower choice.
//
// Data comes from the runner (Spec, Command); output goes to the writers of a Command.
package sandbox
