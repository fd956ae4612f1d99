package daemon

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"spindle/ingest"
)

// streams tells which record stream is read now. The labels come from the settings.
type streams struct {
	in   *ingest.Ingest
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s streams) Describe(c chan<- *prometheus.Desc) { c <- s.desc }

// Collect implements prometheus.Collector.
func (s streams) Collect(c chan<- prometheus.Metric) {
	if st := s.in.Stats(); st.Host != "" {
		c <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, 1, st.Host, st.Protocol)
	}
}

// measure registers the figures of the record streams.
func (d *Daemon) measure() error {
	figure := func(f func(ingest.Stats) float64) func() float64 {
		return func() float64 { return f(d.ingest.Stats()) }
	}
	connected := prometheus.Opts{Name: "spindle_records_connected", Help: "The record stream that is read now."}
	for _, c := range []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spindle_records_seen_total", Help: "Frames of record streams that came.",
		}, figure(func(s ingest.Stats) float64 { return float64(s.Seen) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spindle_records_kept_total", Help: "Hints that were made of them.",
		}, figure(func(s ingest.Stats) float64 { return float64(s.Kept) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spindle_records_lag_seconds", Help: "How old the last frame was when it came.",
		}, figure(func(s ingest.Stats) float64 { return s.Lag.Seconds() })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spindle_records_gaps", Help: "Stretches that were not told and are not made up for yet.",
		}, figure(func(s ingest.Stats) float64 { return float64(s.Gaps) })),
		streams{d.ingest, prometheus.NewDesc(connected.Name, connected.Help, []string{"host", "protocol"}, nil)},
	} {
		if err := d.metrics.Registerer().Register(c); err != nil {
			return fmt.Errorf("register a figure of the record streams: %w", err)
		}
	}
	return nil
}
