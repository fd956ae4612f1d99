package daemon_test

import "spindle/devnet/knot"

// devnetFaults makes the knot send each notice n more times.
func devnetFaults(n int) knot.Faults { return knot.Faults{Duplicate: n} }
