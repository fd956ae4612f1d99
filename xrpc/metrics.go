package xrpc

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what goes through the door. Labels come from closed lists: the NSIDs that are served and
// the codes of errors.go, so that no caller can make new series.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	tokens   *prometheus.CounterVec
	streams  *prometheus.GaugeVec
	frames   *prometheus.CounterVec
	panics   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spindle_xrpc_calls_total", Help: "Calls answered, by method and error name (ok when there was none).",
		}, []string{"nsid", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spindle_xrpc_call_seconds", Help: "How long calls took.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"nsid"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spindle_xrpc_refused_tokens_total", Help: "Service tokens refused, by reason.",
		}, []string{"reason"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spindle_xrpc_streams", Help: "Streams open now.",
		}, []string{"stream"}),
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spindle_xrpc_stream_frames_total", Help: "Frames written to streams.",
		}, []string{"stream"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spindle_xrpc_panics_total", Help: "Calls that panicked: each is a fault of the server.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.calls, m.duration, m.tokens, m.streams, m.frames, m.panics} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of xrpc: %w", err)
		}
	}
	return m, nil
}
