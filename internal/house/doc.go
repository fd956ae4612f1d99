// Package house holds the tests that keep the rooms of docs/architecture.md as that page draws them: who may
// import whom, that every room says what it owns, and that files stay small. It has no code.
package house
