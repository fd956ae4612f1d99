// Package obs is how the operator sees the server: its logger, its metrics registry and its health.
//
// It knows nothing of the product. Metrics have labels from closed lists only, so that nothing from outside
// can make their number grow. Health holds what each component last said of itself; being down is a state to
// show, never a reason to stop.
package obs
