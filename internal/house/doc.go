// Package house holds the tests that keep the house as its pages draw it, and the pages as the house is: who may
// import whom, that every room says what it owns, that files stay small; that links resolve, blocks run, and
// settings, commands, metrics and dependencies are all on their page. It has no code.
//
// `go test ./internal/house -update` writes the parts of docs/architecture.md that follow from the code.
package house
