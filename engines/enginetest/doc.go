// Package enginetest is the conformance suite of the engines: the contract of package engines as tests.
//
// An engine's own test calls Run with a Suite. Engines with a machine inside (a shell, files, processes) are put through all of it;
// one without is put through what remains. A test that fails here is a bug of the engine, also when its author sees
// it differently: the runner relies on nothing but what is tested here.
package enginetest
