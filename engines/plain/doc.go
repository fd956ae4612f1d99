// Package plain is an engine without walls: commands are ordinary processes of this machine, of the account that
// runs spindle, in a folder of their own. It is for the desk alone, where the code is the person's own; the server
// never offers it.
//
// It owns one folder (Config.Dir). What it keeps of the contract of engines: order, exit codes, streams, timeouts and
// cancels, files, a workspace that is removed with the attempt. What it cannot keep is every wall: a command reads and writes
// what the account may, uses its network, its tools and its home, and a mount is the file itself.
//
// Processes are found again by a variable that all of them inherit, so a command that was stopped leaves none but those
// that have cleared their environment and left their group.
package plain
