// Package measure is what the benchmark programs share: samples and their percentiles, the lines that they print, the
// binary that they measure, and the small world that most of them start.
//
// It owns no figures and no targets: a program prints what it saw, docs/bench.md says what that means. Standard output
// holds `name value unit` lines and nothing else; whatever a person should know besides goes to standard error.
package measure
