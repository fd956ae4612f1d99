package obs

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is a registry of its own, so that two servers in one process do not share counters.
type Metrics struct {
	registry *prometheus.Registry
	refused  *prometheus.CounterVec
	denied   *prometheus.CounterVec
}

// NewMetrics returns a registry with the process's own figures and the counters of this package.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spindle_ingest_refused_total", Help: "Things from outside that had no effect, by kind.",
		}, []string{"kind"}),
		denied: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spindle_egress_denied_total", Help: "Connections that the guarded dialer refused, by reason.",
		}, []string{"reason"}),
	}
	m.registry.MustRegister(m.refused, m.denied,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Refused counts one thing from outside that had no effect. kind must come from a closed list in the code.
func (m *Metrics) Refused(kind string) { m.refused.WithLabelValues(kind).Inc() }

// Denied counts one refused connection. reason must come from a closed list in the code.
func (m *Metrics) Denied(reason string) { m.denied.WithLabelValues(reason).Inc() }

// Registerer is where a room registers its own collectors.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

// Handler serves the figures in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
