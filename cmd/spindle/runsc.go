package main

import (
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/runsc/cli/maincli"
)

// runRunscIfAsked turns this process into gVisor's runsc when it was started as such, and then does not return.
// The sandbox engine starts this very executable with argument zero "runsc"; gVisor starts it again as
// "runsc-sandbox", "runsc-gofer" and, inside its own root, as "/proc/self/exe". main calls it before
// anything else, since nothing of spindle may run in those processes.
func runRunscIfAsked() {
	zero := os.Args[0]
	if zero == "/proc/self/exe" || strings.HasPrefix(filepath.Base(zero), "runsc") {
		maincli.Main()
		os.Exit(0)
	}
}
