// Package adopt writes workflow files: first ones for a project that has none, and those that an Actions or a Woodpecker
// file comes to. It is pure.
//
// What a file of another system says and this language has no word for is told by the line of the source, with what to
// do; nothing is dropped without a word, and nothing is guessed.
package adopt
