// Package desk runs the workflows of a checkout on the machine of the person who writes them: `spindle run`.
//
// It compiles with workflow.Compile, executes with runner.Runner and takes the engines of its caller, as the server does.
// What differs is where things come from and go to: the commit is a copy of the working tree (or of another commit),
// facts stay in memory, and output goes to a terminal or a pipe.
//
// It owns the copy of the tree, the order of a pipeline's workflows on this machine, and what the person reads. It refuses
// to write into the person's tree, to take the value of a secret from a command line, and to start anything while a file
// that was asked for is invalid or a secret that a workflow names is missing.
//
// Data comes from the checkout through git and the file system; it goes to the writer that it is given.
package desk
