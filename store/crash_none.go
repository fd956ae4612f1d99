//go:build !crashpoints

package store

// crashes is nothing in a build that people get: the points at which the sweep of cmd/spindle has the process die exist
// only with the build tag crashpoints, and no setting of an ordinary build reaches them.
type crashes struct{}

// crashing lets the compiler leave out what only serves the points.
const crashing = false

func (*crashes) at(string, *op) {}

func (Effects) kind() string { return "" }
