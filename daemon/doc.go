// Package daemon wires the rooms into a running server: Build, Run, Close.
//
// A role is a graph built from the parts, not a flag inside them; this package is the only one that knows
// all of them, and it holds no logic of its own beyond the adapters that let one room speak to another
// without importing it. Start order is a safety property: open and recover the store, sweep what a former
// process left in the engines, then listen, plan and dispatch. Stop order is its reverse: refuse new work,
// let what runs finish or hand it back, save the cursor, close the store.
package daemon
