// Package dummy is an engine without a machine: it interprets a handful of commands in process. It is for tests of
// everything around an engine and for measuring what spindle itself costs.
//
// A script is lines; a line is commands joined by `&&` or `;`; words are separated by blanks and may be quoted with
// ' or ". A word `>&2` at the end of a command sends its output to stderr. Lines that begin with # are skipped.
// As in a shell, a failed command does not end the script, and the exit code is that of the last command.
//
//	echo WORD...     prints the words
//	printenv NAME    prints a variable; exit code 1 when there is none
//	now              prints the time in nanoseconds since 1970
//	sleep SECONDS    waits, fractions allowed
//	put NAME WORD... adds a line of the words to the command's file of that name
//	true, false      exit codes 0 and 1
//	exit [N]         ends the script
//
// Anything else prints "NAME: command not found" to stderr and has exit code 127.
//
// The package owns no state but the IDs of open attempts. It refuses images other than "host". There are no others: mounts and
// the workspace are names only, and there is no root. Data comes from the caller and returns to it.
package dummy
